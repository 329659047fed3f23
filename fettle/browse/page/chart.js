// Charts as SVG: a score over 28 days, and bars.

import { s } from "/page/dom.js";
import { when } from "/page/model.js";

export const DAYS = 28;
const TALL = 150, LEAST_WIDE = 38, MOST_WIDE = 90, DAY_LINE = 18, ABOVE = 16;
const APART = 26, WIDE = 1000, HIGH = 180, LEFT = 34, TOP = 14, BOTTOM = 24, RIGHT = 10;

/** `episodes` have state, start, end, score; `marks` have at, letter, what. */
export function scoreChart({ score, since, episodes, marks, now }) {
  const from = now - DAYS * 86400;
  const x = (at) => LEFT + ((Math.max(from, Math.min(now, at)) - from) / (now - from)) * (WIDE - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value) * (HIGH - TOP - BOTTOM);
  const shown = episodes.filter((one) => (one.end || now) > from).sort((a, b) => a.start - b.start);
  const points = [[from, 1]];
  for (const one of shown) {
    const start = Math.max(from, one.start);
    points.push([start, points.at(-1)[1]], [start, one.score]);
    if (one.end) points.push([one.end, one.score], [one.end, 1]);
  }
  const last = points.at(-1)[1];
  const turned = since > from && since < now && last === 1 && score < 1 ? since : now;
  points.push([turned, last], [turned, score], [now, score]);
  const line = points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const ticks = [28, 21, 14, 7, 0].map((days) => [now - days * 86400, days ? `${days} d ago` : "now"]);
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `Score over ${DAYS} days; now ${score}. The table below has the same.` },
    shown.map((one) => s("rect", { class: `${one.state}Area`, x: x(one.start), y: TOP, width: Math.max(2, x(one.end || now) - x(one.start)), height: HIGH - TOP - BOTTOM })),
    [0, 0.5, 1].map((value) => [s("line", { class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value) }), s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value)]),
    ticks.map(([at, words]) => s("text", { x: x(at), y: HIGH - 6, "text-anchor": at === now ? "end" : at === from ? "start" : "middle" }, words)),
    s("path", { class: "score", d: line }),
    together(marks.filter((one) => one.at > from && one.at <= now + 60), (one) => x(one.at)).map((some) => s("g", {}, s("title", {}, some.map((one) => `${when(one.at)}: ${one.what}`).join("\n")),
      some.map((one) => s("line", { class: "mark", x1: x(one.at), x2: x(one.at), y1: TOP, y2: HIGH - BOTTOM })),
      s("text", { x: Math.min(x(some[0].at), WIDE - RIGHT), y: TOP - 3, "text-anchor": x(some[0].at) > WIDE - 40 ? "end" : "middle" }, [...new Set(some.map((one) => one.letter))].join(" ")))));
}

/** Marks whose letters would hide each other, as one. */
function together(marks, x) {
  const found = [];
  for (const one of [...marks].sort((a, b) => a.at - b.at)) {
    if (found.length && x(one) - x(found.at(-1)[0]) < APART) found.at(-1).push(one);
    else found.push([one]);
  }
  return found;
}

export function bar(share) {
  return s("svg", { class: "bar-of", viewBox: "0 0 220 14", role: "presentation", "aria-hidden": "true" }, s("rect", { x: 0, y: 1, height: 12, width: Math.max(2, 220 * share) }));
}

/** Two bars a day, as wide for one day as for many, each with its number; the table below has the same. */
export function dayBars(days) {
  const most = Math.max(1, ...days.flatMap((one) => [one.keptAway, one.landedOnRefused]));
  const wide = Math.max(LEAST_WIDE, Math.min(MOST_WIDE, 1000 / Math.max(1, days.length))), thick = wide * 0.36, foot = TALL - DAY_LINE;
  const one = (kind, x, n) => {
    const high = (n / most) * (foot - ABOVE);
    return n ? [s("rect", { class: kind, x, width: thick, y: foot - high, height: high }), s("text", { x: x + thick / 2, y: foot - high - 4, "text-anchor": "middle" }, n)] : [];
  };
  return s("svg", { class: "chart days", viewBox: `0 0 ${wide * days.length} ${TALL}`, width: wide * days.length, height: TALL, role: "img", "aria-label": "Pods by day. The table below has the same." },
    s("line", { class: "axis", x1: 0, x2: wide * days.length, y1: foot, y2: foot }),
    days.map((day, i) => [
      one("kept", i * wide + wide * 0.12, day.keptAway), one("landed", i * wide + wide * 0.52, day.landedOnRefused),
      s("text", { x: i * wide + wide / 2, y: TALL - 5, "text-anchor": "middle" }, day.day.slice(5)),
    ]));
}
