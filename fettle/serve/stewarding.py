"""Makes the steward: what the leader keeps doing, and which of it says what is amiss."""

from functools import partial

from fettle.api import core
from fettle.client import EventRecorder, Session, identity
from fettle.cluster import Inventory
from fettle.config import Settings
from fettle.model import Mode
from fettle.observing import StewardMetrics
from fettle.records import Recorder
from fettle.scheduling import Answers
from fettle.scheduling.placed import PodObservers
from fettle.steward import (
    LET_PREEMPT_NOBODY,
    PREEMPTOR_WOKEN_FOR_S,
    STEWARD,
    AdmissionChecks,
    AllowedNodes,
    EventsOnPods,
    FailedDevices,
    HealthRecords,
    HealthTaints,
    HoldTaints,
    HopelessOwners,
    HopelessPods,
    JobSuspension,
    LostNodes,
    NodeMarking,
    Nudge,
    Owners,
    PatienceEnds,
    PolicyStatuses,
    PreemptibleNodes,
    PreemptorNudge,
    RefusalEvents,
    Steward,
    TaintNews,
    Waking,
    news_of_failures,
    news_of_risks,
    news_of_starts,
    waiting,
)


def make_steward(
    session: Session,
    settings: Settings,
    answers: Answers,
    inventory: Inventory,
    recorder: Recorder,
    pods: PodObservers,
    owners: HopelessOwners,
    metrics: StewardMetrics,
) -> Steward:
    publisher = answers.publisher
    events = EventRecorder(session, STEWARD, identity(), metrics.recorded)
    healths = HealthRecords(
        session, publisher, inventory, settings.steward.health_writes_per_second, metrics
    )
    news = TaintNews(recorder, events, settings.mode)
    taints = HealthTaints(session, answers, settings, metrics, news)
    holds = HoldTaints(session, publisher, adds=lambda: settings.mode is not Mode.OBSERVE)
    marking = NodeMarking(session, answers, settings, metrics, recorder)
    suspension = JobSuspension(session, answers, settings, recorder)
    failed = FailedDevices(
        session,
        answers,
        pods.at_risk,
        pods.finished,
        pods.freed,
        settings,
        events,
        recorder,
        metrics,
    )
    lost = LostNodes(session, answers, settings, events, recorder)
    namespace = settings.namespace or session.namespace
    checks = AdmissionChecks(session, answers, settings)
    statuses = PolicyStatuses(session, answers, settings)
    waking = _waking(session, namespace, settings, answers, metrics)

    def writes_about(pod: core.Pod) -> bool:
        return answers.mode_of(pod) is not Mode.OBSERVE

    pod_news = {
        "pods at risk": partial(news_of_risks, pods.at_risk),
        "pods that do not start": partial(news_of_starts, publisher),
        "pods on failed devices": partial(news_of_failures, pods.at_risk, pods.crashes),
    }
    hopeless = HopelessPods(publisher, owners, events, Owners(session), suspension, writes_about)
    return Steward(
        session,
        namespace=namespace,
        identity=identity(),
        settings=settings.steward,
        metrics=metrics,
        keeping=[
            *(one.keep for one in waking),
            events.run,
            RefusalEvents(answers, publisher, events.record, pods.refusals).run,
            *(
                EventsOnPods(what, find, events, writes_about).keep
                for what, find in pod_news.items()
            ),
            hopeless.keep,
            holds.keep,
            healths.keep,
            statuses.keep,
            checks.keep,
            taints.keep,
            marking.keep,
            failed.keep,
            lost.keep,
        ],
        notes=[
            *(one.notes for one in waking),
            healths.notes,
            statuses.notes,
            checks.notes,
            holds.notes,
            taints.notes,
            marking.notes,
            suspension.notes,
            failed.notes,
            lost.notes,
        ],
    )


def _waking(
    session: Session,
    namespace: str,
    settings: Settings,
    answers: Answers,
    metrics: StewardMetrics,
) -> list[Waking | PatienceEnds]:
    """Of pods that filter refused, by what changes and by time, and of those that preempt
    refused."""
    publisher, interval_s = answers.publisher, settings.steward.wake_interval_seconds
    nudge = Nudge(session, namespace, settings.steward.wake_claim).wake
    return [
        PatienceEnds(
            answers, publisher, AllowedNodes(answers, overruled=True).find, nudge, metrics
        ),
        Waking(
            publisher,
            metrics,
            waiting=waiting,
            allowed=AllowedNodes(answers).find,
            wake=nudge,
            whom="refused pods",
            interval_s=interval_s,
        ),
        Waking(
            publisher,
            metrics,
            waiting=partial(waiting, saying=LET_PREEMPT_NOBODY),
            allowed=PreemptibleNodes(answers).find,
            wake=PreemptorNudge(session, namespace, settings.steward.wake_pod).wake,
            whom="preemptors",
            interval_s=interval_s,
            longest_pause_s=PREEMPTOR_WOKEN_FOR_S,
        ),
    ]
