// Charts as SVG: a score over 28 days, and bars.

import { s } from "/page/dom.js";
import { when } from "/page/model.js";

export const DAYS = 28;
const WIDE = 1000, HIGH = 180, LEFT = 34, TOP = 14, BOTTOM = 24, RIGHT = 10;

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
    marks.filter((one) => one.at > from && one.at <= now).map((one) => s("g", {}, s("title", {}, `${when(one.at)}: ${one.what}`),
      s("line", { class: "mark", x1: x(one.at), x2: x(one.at), y1: TOP, y2: HIGH - BOTTOM }), s("text", { x: x(one.at), y: TOP - 3, "text-anchor": "middle" }, one.letter))));
}

export function bar(share) {
  return s("svg", { class: "bar-of", viewBox: "0 0 220 14", "aria-hidden": true }, s("rect", { x: 0, y: 1, height: 12, width: Math.max(2, 220 * share) }));
}

/** Two bars a day; the table beside it has the numbers. */
export function dayBars(days) {
  const most = Math.max(1, ...days.flatMap((one) => [one.keptAway, one.landedOnRefused]));
  const wide = Math.max(60, Math.min(120, 1000 / Math.max(1, days.length)));
  const high = 120, scale = (n) => (n / most) * (high - 24);
  return s("svg", { class: "chart days", viewBox: `0 0 ${wide * days.length} ${high}`, width: wide * days.length, height: high, role: "img", "aria-label": "Pods by day. The table below has the same." },
    days.map((one, i) => [
      s("rect", { class: "kept", x: i * wide + 6, width: wide / 3, y: high - 18 - scale(one.keptAway), height: scale(one.keptAway) }),
      s("rect", { class: "landed", x: i * wide + 8 + wide / 3, width: wide / 3, y: high - 18 - scale(one.landedOnRefused), height: scale(one.landedOnRefused) }),
      s("text", { x: i * wide + wide / 2, y: high - 5, "text-anchor": "middle" }, one.day.slice(5)),
    ]));
}
