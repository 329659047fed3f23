// Views of one thing: a node, a device, a pod.

import { facts, h, link, table } from "/page/dom.js";
import { DAYS, scoreChart } from "/page/chart.js";
import { LETTERS, ago, when } from "/page/model.js";
import { askedFor } from "/page/lists.js";

const MOST_NODES = 200;
const SCORES = "Scores are what the scheduler is told: 0 to 10, and bonuses.";
/** Parts of the view of a pod: functions of (explained, page) that give an element. */
export const PARTS_OF_POD = [whatIf];
const CHANGES = { policy: "its policy were", mend: "this device, or node with its devices, were sound:", cordon: "this node were cordoned:" };
const SUCH_AS = { policy: "such as training", mend: "NODE, or a device as its page names it", cordon: "NODE" };

/** What would become of the pod; judged by the code that answers filter. */
function whatIf(told, page) {
  if (!told.demand) return null;
  const answer = h("div", { role: "status" });
  const how = h("select", { "aria-label": "What would be otherwise", change: (event) => { name.placeholder = SUCH_AS[event.target.value]; } }, Object.entries(CHANGES).map(([value, words]) => h("option", { value }, words)));
  const name = h("input", { "aria-label": "Name of the policy, device or node", placeholder: SUCH_AS.policy, maxlength: 400, autocomplete: "off", keydown: (event) => { if (event.key === "Enter") ask(); } });
  const cell = (one) => (!one ? "–" : one.verdict === "fits" ? `fits ${one.score}` : one.verdict);
  async function ask() {
    if (!name.value.trim()) return;
    try {
      const found = await page.ask("/what-if", { pod: told.pod, [how.value]: name.value.trim() });
      answer.replaceChildren(
        h("p", {}, `Now: ${found.before.text}`),
        h("p", { class: "again" }, `If ${found.change}: ${found.nodes.length ? found.after.text : "no answer would change"}`),
        ...(found.nodes.length ? [table("Nodes whose answer changes", [["Node", "name"], ["Now", "short"], ["Then", "short"], "Reason then"], found.nodes.slice(0, MOST_NODES).map((one) => [link(one.node, "node", one.node), cell(one.before), cell(one.after), one.after ? one.after.reason : ""]), "")] : []));
    } catch (error) {
      answer.replaceChildren(h("p", { class: "problem", role: "alert" }, error.message));
    }
  }
  return h("div", {}, h("h3", {}, "What if"), h("p", {}, "If ", how, " ", name, " ", h("button", { type: "button", click: ask }, "Ask")), answer);
}

const state = (word) => h("span", { class: `state ${LETTERS[word] || ""}` }, word);

function evidence(rows) {
  return table("What is held against it, the heaviest first. A weight of 1 makes it worthless.", [["Weight", "number"], "What", ["Source", "name"], ["Reported by", "name"], ["When", "short"], ["Halves every", "short"]], rows.map((one) => [
    Math.round(100 * one.weight) / 100, one.text, one.source, one.reporter, ago(one.observedAt), one.halfLifeSeconds ? `${Math.round(one.halfLifeSeconds / 60)} min` : "",
  ]), "Nothing is held against it.");
}

function about(told) {
  return [
    told.healthyAgain ? h("p", { class: "again" }, told.healthyAgain.text) : null,
    facts(["State", h("span", {}, state(told.state), told.kept ? ` ${told.kept}` : "")], ["Score", `${Math.round(100 * told.score) / 100} of 1`], ["Since", told.since ? `${when(told.since)} (${ago(told.since)})` : ""],
      ["Held", told.holds.map((one) => one.text).join("; ")], ["Used by", users(told)], ["May be used by", (told.possiblyUsedBy || []).join(", ")],
      ["Withheld", told.withheld], ["About", told.about], ["Breaker", told.setAside.map((one) => one.text).join("; ")]),
  ];
}

function users(told) {
  const known = told.usedBy || [];
  return known.length ? h("span", {}, known.map((one, i) => [i ? ", " : "", one.startsWith("claim ") ? one : link(one, "pod", ...one.split("/"))])) : "";
}

export const node = (path, query, page) => askedFor(page, "/explain", { node: path[0] || "" }, (told) => {
  const cells = [
    ...told.devices.map((one) => [one.device, one.device, one]),
    ...told.resources.flatMap((of) => of.units.map((one) => [`${of.resource} ${one.unit}`, `${told.node}/${of.resource}/${one.unit}`, one])),
  ];
  return [
    h("h2", {}, `Node ${told.node}`), about(told),
    h("p", {}, told.resources.map((one) => `${one.resource}: ${one.allocatable} of ${one.capacity} allocatable. `), told.missing.map((one) => `${one.text}. `)),
    told.marks ? h("p", { class: "quiet" }, `Written on it: ${told.marks.text}`) : null,
    table("Devices of which something is known by name", [["Device", "name"], ["State", "short"], ["Score", "number"], "In use", "Cause"], cells.map(([name, path, one]) => [
      link(name, "device", path), state(one.state), one.score, one.allocated ? "yes" : "", one.evidence[0] ? one.evidence[0].text : "",
    ]), "No device is named."),
    h("h3", {}, "Evidence about the node"), evidence(told.evidence), chartOf(told),
    told.quarantined.map((one) => h("p", { class: "problem" }, one)), told.problems.map((one) => h("p", { class: "problem" }, one)),
  ];
});

/** The score over 28 days, and the same as a table. Decisions on it are what Fettle's journal has. */
function chartOf(told) {
  const now = Date.now() / 1000;
  const marks = [
    ...(told.happened || []).map((one) => ({ ...one, letter: one.what.includes("reboot") ? "R" : one.what.includes("remedi") ? "M" : "F" })),
    ...told.holds.filter((one) => one.since).map((one) => ({ at: unix(one.since), letter: "H", what: one.text })),
    ...told.evidence.filter((one) => one.observedAt).map((one) => ({ at: one.observedAt, letter: "E", what: one.text })),
    ...(told.decisions || []).map((one) => ({ at: one.first, letter: "W", what: `Fettle: ${Object.keys(one.reasons || {}).join(", ")} ${one.why || ""}` })),
  ];
  const rows = [
    ...told.episodes.map((one) => [one.start, `${one.state}, lowest score ${one.score}`, one.end ? `until ${when(one.end)}` : "still", one.text]),
    ...marks.map((one) => [one.at, { R: "reboot", M: "remediation", F: "fault over", H: "hold", E: "evidence", W: "written by Fettle" }[one.letter], "", one.what]),
  ].sort((a, b) => b[0] - a[0]);
  return [h("h3", {}, `The last ${DAYS} days`), scoreChart({ score: told.score, since: told.since, episodes: told.episodes, marks, now }),
    h("p", { class: "quiet" }, "E evidence, F a grave fault was over, H hold, R reboot, M remediation, W written by Fettle"),
    table("The same in words, the newest first", [["Time", "short"], ["What", "name"], ["Until", "short"], "Text"], rows.map(([at, ...rest]) => [when(at), ...rest]), "Nothing is stored of these days.")];
}

const unix = (time) => (typeof time === "number" ? time : Date.parse(time) / 1000 || 0);

export const device = (path, query, page) => {
  const name = path.join("/");
  const own = { ask: async (where, asked) => {
    const told = await page.ask(where, asked);
    if (told.node) {
      try {
        const found = await page.ask("/decisions", { since: `${DAYS}d`, node: told.node });
        told.decisions = found.decisions.filter((one) => one.verb === "steward" && one.kind !== "Pod").slice(0, 50);
      } catch { /* the chart has no marks of the journal then */ }
    }
    return told;
  } };
  return askedFor(own, "/explain", { device: name }, (told) => [
    h("h2", {}, `Device ${told.name}`), told.node ? h("p", {}, "On node ", link(told.node, "node", told.node)) : null,
    about(told), chartOf(told), h("h3", {}, "Evidence"), evidence(told.evidence),
    told.taint ? h("p", { class: "quiet" }, `Taint: ${told.taint.text}`) : null,
    told.problems.map((one) => h("p", { class: "problem" }, one)),
  ]);
};

/** The gravest reason of a node's answer. */
function gravest(answer) {
  for (const [part, before] of [["refusals", ""], ["rejected", ""], ["undecided", "undecided: "], ["overruled", "allowed by the breaker: "], ["conceded", "as the last choice: "]]) {
    const found = answer[part] || [];
    if (found.length) return `${before}${found[0]}${found.length > 1 ? ` (+${found.length - 1} more)` : ""}`;
  }
  const judged = [...(answer.devices || []), ...(answer.health ? [answer.health] : []), ...(answer.units || [])];
  const heaviest = judged.flatMap((one) => one.evidence || []).sort((a, b) => b.weight - a.weight)[0];
  const got = (answer.devices || []).map((one) => one.device);
  return [got.length ? `would get ${got.slice(0, 3).join(", ")}${got.length > 3 ? ` and ${got.length - 3} more` : ""}` : "", heaviest ? heaviest.text : "", (answer.notes || [])[0] || ""].filter(Boolean).join("; ") || "sound";
}

export const pod = (path, query, page) => askedFor(page, "/explain", { pod: path.slice(0, 2).join("/") }, (told) => {
  const all = Object.entries(told.nodes), matter = all.filter(([, one]) => !one.excluded);
  const answers = matter.length ? matter : all, left = all.length - answers.length;
  const word = (one) => (one.fits ? "fits" : !one.allowed ? "refused" : one.rejected.length ? "no fit" : "undecided");
  answers.sort((a, b) => b[1].fits - a[1].fits || b[1].allowed - a[1].allowed || (b[1].score || 0) - (a[1].score || 0) || (b[1].value || 0) - (a[1].value || 0) || (a[0] < b[0] ? -1 : 1));
  const rows = answers.slice(0, MOST_NODES).map(([name, one]) => [link(name, "node", name), word(one), one.fits ? one.score : "", gravest(one)]);
  const order = answers.some(([, one]) => one.fits) ? "the best first" : "none fits, those that come nearest first";
  const notes = told.notes.filter((note) => !told.answer || !told.answer.text.includes(note));
  return [
    h("h2", {}, `Pod ${told.pod}`),
    h("p", { class: "again" }, told.answer ? told.answer.text : `${told.pod} needs no devices: every node is allowed`),
    facts(["Policy", `${told.policy.name} (${told.policy.origin})`], ["Mode", `${told.policy.mode} (${told.policy.modeOrigin})`], ["Node", told.placed ? link(told.placed.node, "node", told.placed.node) : ""],
      ["At risk", told.placed && told.placed.worst], ["Owner", told.placed && told.placed.owner ? `${told.placed.owner.kind} ${told.placed.owner.name}` : ""]),
    notes.length ? [h("h3", {}, "Notes"), h("ul", {}, notes.map((note) => h("li", {}, note)))] : null,
    PARTS_OF_POD.map((part) => part(told, page)),
    h("h3", {}, "Nodes"),
    table(answers.length > MOST_NODES ? `The first ${MOST_NODES} of ${answers.length}, ${order}. ${SCORES}` : `${order[0].toUpperCase()}${order.slice(1)}. ${SCORES}`, [["Node", "name"], ["Answer", "short"], ["Score", "number"], "Reason"], rows, told.demand ? "No node was judged." : "The pod requests no devices."),
    left ? h("p", { class: "quiet" }, `Not listed: ${left === 1 ? "1 node that is" : `${left} nodes that are`} excluded, as said above.`) : null,
    h("h3", {}, "Decisions"),
    table("What Fettle said of it, the newest first", [["Time", "short"], ["Verb", "short"], ["Decided", "short"], "Why", ["What became of it", "name"]], told.decisions.map((one) => [when(one.last), one.verb, one.decided, one.why || "", [one.became, one.end].filter(Boolean).join(": ")]), "Nobody has asked about it."),
  ];
});
