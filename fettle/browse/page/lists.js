// Views that are lists: why, waiting, at risk, the report.

import { h, link, table } from "/page/dom.js";
import { bar, dayBars } from "/page/chart.js";
import { ago, causes, counted, duration, when } from "/page/model.js";

/** A view whose content is made from what is polled. */
function polled(make, page) {
  const element = h("div", {});
  let shown = "";
  return {
    element,
    update() {
      const { key, parts } = make(page.state);
      if (key === shown) return;
      shown = key;
      element.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    },
  };
}

/** A view whose content is asked for once; what a refusal says is shown. */
export function askedFor(page, path, query, make) {
  const element = h("div", {}, h("p", { class: "quiet", role: "status" }, "Asking …"));
  const load = async () => {
    try {
      element.replaceChildren(...make(await page.ask(path, query)).flat(Infinity).filter(Boolean));
    } catch (error) {
      element.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message), h("button", { type: "button", click: load }, "Try again"));
    }
    performance.mark("view-shown");
  };
  load();
  return { element };
}

const waitingFor = (state) => h("p", { class: "quiet", role: "status" }, state.fleetProblem || "Waiting for an answer …");

export const why = (path, query, page) => polled((state) => {
  if (!state.fleet) return { key: state.fleetProblem, parts: [waitingFor(state)] };
  const found = causes(state.fleet), most = found.length ? found[0].devices : 1;
  const rows = found.map((one) => [
    h("a", { href: `#/fleet?cause=${encodeURIComponent(one.cause)}` }, one.cause), bar(one.devices / most), one.devices, one.nodes.size, one.why,
  ]);
  return { key: `tag ${state.fleet.tag}`, parts: [h("h2", {}, "Why"), table("Devices that are not Healthy, or held, by cause. A click shows them in the fleet.", [["Cause", "name"], "", ["Devices", "number"], ["Nodes", "number"], "One of them"], rows, "All devices are Healthy.")] };
}, page);

export function reasonOf(row, now) {
  if (row.gates.length) return `its scheduling gates are not removed: ${row.gates.join(", ")}`;
  const said = row.said;
  if (!said) return `no scheduler has asked Fettle about it (its scheduler is ${row.scheduler})`;
  const nodes = `${said.refused || 0} of ${counted(said.nodes || 0, "node")} ${row.enforced ? "refused" : "would be refused"}`;
  const fits = row.refused ? "" : `; the scheduler may place it on ${(said.nodes || 0) - (said.refused || 0)}`;
  return `${nodes}${fits}${said.why ? `: ${said.why}` : ""}${said.last ? ` (asked ${ago(said.last, now)})` : ""}`;
}

export const waiting = (path, query, page) => polled((state) => {
  const told = state.headline;
  if (!told) return { key: "", parts: [waitingFor(state)] };
  const rows = [...told.waiting].sort((a, b) => b.refused - a.refused || (a.since || 0) - (b.since || 0)).map((row) => [
    link(row.pod, "pod", ...row.pod.split("/")), row.policy, row.mode, row.since ? duration(told.now - row.since) : "",
    row.refused ? "health" : row.said ? "the scheduler" : "to be asked about", row.said && row.said.waitsUntil ? when(row.said.waitsUntil) : row.refused ? "something is Healthy again" : "", reasonOf(row, told.now),
  ]);
  const caption = counted(told.waitingTotal, "pod with devices has no node", "pods with devices have no node") + (told.waitingTotal > rows.length ? `; ${rows.length} are shown` : "");
  return { key: JSON.stringify(rows.map((row) => row.slice(1))) + told.waiting.map((row) => row.pod).join(), parts: [h("h2", {}, "Waiting"), table(caption, [["Pod", "name"], ["Policy", "name"], "Mode", ["For", "short"], ["Waits for", "name"], ["Until", "name"], "Reason"], rows, "No pod with devices waits for a node.")] };
}, page);

export const risk = (path, query, page) => askedFor(page, "/pods", { "at-risk": "true" }, (told) => [
  h("h2", {}, "At risk"),
  table(counted(told.total, "pod is where its own policy refuses now", "pods are where their own policy refuses now"), [["Pod", "name"], ["Node", "name"], ["Policy", "name"], ["Since", "short"], "Certain", "Reason"], told.pods.map((one) => [
    link(one.pod, "pod", ...one.pod.split("/")), link(one.node, "node", one.node), one.policy, ago(one.since), one.use === "certain" ? "yes" : "may be", one.worst || (one.refusals || [])[0] || "",
  ]), "No pod is where its policy refuses."),
  told.problems.map((problem) => h("p", { class: "problem" }, problem)),
]);

export function report(path, query, page) {
  const since = query.get("since") || "7d";
  const choice = h("select", { "aria-label": "How far back", change: (event) => { location.hash = `#/report?since=${encodeURIComponent(event.target.value)}`; } },
    ["1d", "7d", "28d"].map((one) => h("option", { value: one, selected: one === since }, one)));
  return askedFor(page, "/report", { since }, (told) => !told.recorded ? [h("h2", {}, "Report"), h("p", {}, "`fettle ui` records no decisions: open the page of a server.")] : [
    h("h2", {}, "Report"), h("p", {}, "The last ", choice, ` as this process has recorded it: ${counted(told.pods, "pod")} with devices.`),
    told.notes.map((note) => h("p", { class: "quiet" }, note)),
    h("h3", {}, "By day"), told.byDay.length ? dayBars(told.byDay) : null,
    table("Blue: pods that were kept, or would have been kept, from nodes. Red: pods that were bound to what Fettle refuses.", ["Day (UTC)", ["Pods", "number"], ["Kept away", "number"], ["On what Fettle refuses", "number"], ["Refused everywhere", "number"]],
      told.byDay.map((one) => [one.day, one.pods, one.keptAway, one.landedOnRefused, one.waited]), "Nothing is recorded."),
    h("h3", {}, "Kept away"),
    table("Pods for which nodes were refused (enforce), or would have been. `fettle explain reason CODE` says what a reason means.", [["Policy", "name"], "Mode", ["Reason", "name"], ["Pods", "number"], ["Nodes", "number"], "What became of them"],
      told.keptAway.map((row) => [row.policy, row.mode, row.reason, row.pods, row.nodes, Object.entries(row.became).map(([word, n]) => `${n} ${word}`).join(", ")]), "No node was refused for any pod."),
    ...[["On what Fettle refuses", told.landedOnRefused, "No pod was bound to what Fettle refuses."], ["Wrong: ran well on what Fettle refuses", told.wrong.ranWell, "None."], ["Wrong: failed where Fettle refused nothing", told.wrong.failedUnseen, "None."]]
      .map(([title, rows, none]) => [h("h3", {}, title), table(counted(rows.length, "pod"), [["Time", "short"], ["Pod", "name"], ["Policy", "name"], "Mode", ["Node", "name"], ["Device-hours", "number"], "Why", "Now"], rows.map((row) => [
        when(row.at), row.pod, row.policy, row.mode, link(row.node, "node", row.node), row.deviceHours, row.why || row.reasons.join(", "), row.end ? `${row.became}: ${row.end}` : row.became]), none)]),
    h("h3", {}, "Refused everywhere"),
    table(counted(told.waiting.length, "pod"), [["Time", "short"], ["Pod", "name"], ["Policy", "name"], "Mode", ["Waited", "short"], "Why", "Now"], told.waiting.map((row) => [when(row.at), row.pod, row.policy, row.mode, (row.until ? "" : "at least ") + duration(row.seconds), row.why, row.became]), "No pod was refused everywhere."),
  ]);
}
