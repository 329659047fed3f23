// The few numbers above every view, and what is to be known beside them.

import { h, link } from "/page/dom.js";
import { counted, duration, when } from "/page/model.js";

export function headline({ fleet, headline: told, fleetProblem }) {
  const tiles = [], notes = [];
  const tile = (number, words, bad, ...path) => tiles.push(h("li", { class: bad ? "bad" : null }, h("b", {}, number), " ", h("span", {}, path.length ? link(words, ...path) : words)));
  if (told && told.mode) tile(told.mode, "mode");
  if (fleet) {
    const n = fleet.sums;
    tile(`${n.D + n.U} of ${n.devices}`, "devices bad", n.D + n.U > 0, "why");
    tile(n.badNodes, `of ${counted(n.nodes, "node")} ${n.badNodes === 1 ? "has" : "have"} a bad one`, n.badNodes > 0);
    tile(n.held, "held", false);
    tile(n.missing, n.W ? "missing or withdrawn" : "missing", n.missing > 0);
    if (n.K) tile(n.K, "unknown", true);
    tile(n.inUse, "in use", false);
  }
  if (told) {
    tile(told.atRisk, told.atRisk === 1 ? "pod at risk" : "pods at risk", told.atRisk > 0, "risk");
    const refused = told.waiting.filter((pod) => pod.refused && pod.enforced);
    const would = told.waiting.filter((pod) => pod.refused && !pod.enforced);
    const more = told.waitingTotal > told.waiting.length ? "+" : "";
    tile(`${refused.length}${more}`, refused.length === 1 && !more ? "pod waits for health" : "pods wait for health", refused.length > 0, "waiting");
    if (refused.length) {
      const longest = refused.reduce((a, b) => (began(a) <= began(b) ? a : b));
      const until = longest.said.waitsUntil ? `, until ${when(longest.said.waitsUntil)}` : ", until something is Healthy again";
      notes.push(["", `${longest.pod} waits the longest, for ${duration(told.now - began(longest))}${until}`]);
    }
    if (would.length || (told.mode && told.mode !== "enforce" && told.atRisk)) {
      notes.push(["warn", `Enforcing would refuse every node to ${counted(would.length, "pod that waits", "pods that wait")} now; ${counted(told.atRisk, "pod that runs is where its policy refuses", "pods that run are where their policies refuse")}.`]);
    }
    for (const one of told.setAside || []) notes.push(["warn", `breaker: ${one.text}`]);
    for (const one of told.problems || []) notes.push(["warn", one]);
    for (const one of told.unseen || []) notes.push(["", one]);
    for (const [role, ages] of Object.entries(told.asked || {})) notes.push(["", lastAsked(role, Object.entries(ages))]);
    for (const one of told.callers || []) notes.push(["warn", one]);
    for (const one of (told.modes || []).slice(1)) notes.push(["", one]);
    for (const one of told.notes || []) notes.push(["", one]);
    if (told.quarantined) notes.push(["warn", `${counted(told.quarantined, "object")} cannot be read: /readyz?verbose names them`]);
  }
  if (fleetProblem) notes.push(["warn", fleetProblem]);
  return [h("ul", { class: "tiles" }, tiles), h("ul", { class: "notes" }, notes.slice(0, 12).map(([kind, text]) => h("li", { class: kind || null }, text)))];
}

/** Since when a pod waits: as the table of waiting pods counts it. */
const began = (pod) => pod.since || pod.said.first || 0;

function lastAsked(role, ages) {
  if (ages.every(([, seconds]) => seconds === null)) return `${role}: nobody has asked this process yet`;
  return `${role}: last asked: ${ages.map(([name, seconds]) => `${name} ${seconds === null ? "never" : `${duration(seconds)} ago`}`).join(", ")}`;
}
