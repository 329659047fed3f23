// The page: who is asking, what is polled, and which view is shown.

import { h, route } from "/page/dom.js";
import { decode, filtered } from "/page/model.js";
import { headline } from "/page/headline.js";
import { FleetView } from "/page/fleet.js";

const EVERY_MS = 2000, LATE_MS = 15000, AGAIN_MS = 200, MOST_MS = 30000;
const VIEWS = {};
const NAMES = [["fleet", "Fleet"]];

const $ = (id) => document.getElementById(id);
const state = { token: "", fleet: null, label: "", headline: null, fleetProblem: "", isRefused: false, view: null, shownAt: 0, refusedCode: "" };

/** Registers a view: `make(path, query, page)` returns { element, update?, close? }. */
export function register(name, title, make) {
  VIEWS[name] = make;
  if (title && !NAMES.some(([known]) => known === name)) NAMES.push([name, title]);
}

export class Refused extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

/** JSON of this server, or Refused with its sentence. */
async function ask(path, query = {}) {
  const asked = new URLSearchParams(query).toString();
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  let reply;
  try {
    reply = await fetch(asked ? `${path}?${asked}` : path, { headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(MOST_MS) });
  } catch (error) {
    throw new Refused(0, `Fettle did not answer: ${error.message}`);
  }
  let told = null;
  try { told = await reply.json(); } catch { /* its status says enough */ }
  if (!reply.ok) throw new Refused(reply.status, (told && told.error) || `Fettle answers ${reply.status}`);
  if (told === null) throw new Refused(reply.status, "the answer is no JSON");
  return told;
}

const page = {
  ask, state,
  say: (text) => { $("said").textContent = text; },
  hint(text, x, y) {
    const hint = $("hint");
    hint.hidden = !text;
    if (!text) return;
    hint.textContent = text;
    hint.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - hint.offsetWidth - 8))}px`;
    hint.style.top = `${Math.max(4, y + 18 + hint.offsetHeight > innerHeight ? y - hint.offsetHeight - 8 : y + 18)}px`;
  },
  go: (...path) => { location.hash = route(...path); },
  query(changes) {
    const { path, query } = where();
    for (const [name, value] of Object.entries(changes)) { if (value) query.set(name, value); else query.delete(name); }
    history.replaceState(null, "", route(...path) + (query.size ? `?${query}` : ""));
    if (state.view) state.view.update(query);
  },
  poll: () => poll(),
};

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { path: parts.length ? parts : ["fleet"], query: new URLSearchParams(query || "") };
}

const ONCE = "once=";

/** What follows # and does not begin with / is a token, or a code that gives one: once, as others may read the command line of a browser. It is kept in memory alone. */
async function takeToken() {
  const given = location.hash.slice(1);
  if (!given || given.startsWith("/")) return;
  history.replaceState(null, "", "#/fleet");
  try { state.token = decodeURIComponent(given); } catch { state.token = given; }
  if (!state.token.startsWith(ONCE)) return;
  state.token = state.token.slice(ONCE.length);
  try {
    state.token = (await ask("/token")).token;
  } catch (error) {
    state.token = "";
    state.refusedCode = error.message;
  }
}

async function arrive() {
  await takeToken();
  show();
  poll();
}

function show() {
  const { path, query } = where();
  if (state.view && state.view.close) state.view.close();
  page.hint(null);
  const make = VIEWS[path[0]] || VIEWS.fleet;
  const name = VIEWS[path[0]] ? path[0] : "fleet";
  $("views").replaceChildren(...NAMES.map(([one, title]) => h("a", { href: route(one), "aria-current": one === name ? "page" : null }, title)));
  document.title = `${path.slice(name === "fleet" ? 0 : 1).join(" / ") || name} · Fettle`;
  state.view = make(path.slice(1), query, page);
  $("main").replaceChildren(state.view.element);
  if (state.view.element.dataset.fills) $("main").replaceChildren(...state.view.element.childNodes);
  if (state.view.update) state.view.update(query);
}

function askForToken(sentence) {
  const who = $("who");
  if (!sentence) { who.hidden = true; return; }
  if (!who.hidden && who.dataset.why === sentence) return;
  who.dataset.why = sentence;
  const field = h("input", { id: "token", type: "password", autocomplete: "off", "aria-label": "Token", placeholder: "Token" });
  const take = () => { state.refusedCode = ""; state.token = field.value.trim(); field.value = ""; who.hidden = true; poll(); show(); };
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") take(); });
  who.replaceChildren(
    h("h2", {}, "Who are you?"), h("p", { class: "problem", role: "alert" }, sentence),
    h("p", {}, field, " ", h("button", { type: "button", click: take }, "Show")),
    h("p", { class: "quiet" }, "Paste the token, such as what follows # in the URL that the command printed. The page keeps it in memory alone: reload, and it is forgotten."));
  who.hidden = false;
  field.focus();
}

let timer = 0, polling = null, isBehind = false;

function poll() {
  clearTimeout(timer);
  if (!polling) polling = pollOnce().finally(() => {
    polling = null;
    if (!state.isRefused) timer = setTimeout(poll, isBehind ? 0 : document.hidden ? LATE_MS : EVERY_MS);
  });
  return polling;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Polls at once whenever the server says that there is something newer. Without that, the page polls as always. */
async function follow() {
  for (;;) {
    await pause(AGAIN_MS);
    if (document.hidden || state.isRefused || !state.shownAt) continue;
    try {
      const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
      const reply = await fetch("/changes", { headers, cache: "no-store", credentials: "omit", redirect: "error" });
      if (!reply.ok) { await pause(LATE_MS); continue; }
      performance.mark("follows");
      const reader = reply.body.getReader();
      for (;;) {
        const { done } = await reader.read();
        if (done) break;
        isBehind = true;
        poll();
      }
    } catch { await pause(EVERY_MS); }
  }
}

async function pollOnce() {
  let problem = "";
  isBehind = false;
  try {
    state.headline = await ask("/headline");
    state.isRefused = false;
    askForToken("");
  } catch (error) {
    problem = error.message;
    state.isRefused = error.status === 401;
    if (state.isRefused) { askForToken(state.refusedCode || problem); state.headline = state.fleet = null; }
  }
  if (!problem) {
    try {
      const query = state.label ? { label: state.label } : {};
      const known = state.fleet && state.fleet.label === state.label;
      const told = await ask("/fleet", known ? { ...query, tag: state.fleet.tag } : query);
      if (told.nodes) state.fleet = { ...decode(told), label: state.label };
      state.fleetProblem = "";
    } catch (error) {
      state.fleetProblem = error.message;
      if (error.status === 403) state.fleet = null;
    }
    state.shownAt = Date.now();
  }
  $("fresh").textContent = problem && state.shownAt ? `last answer ${Math.round((Date.now() - state.shownAt) / 1000)} s ago: ${problem}` : problem || "live";
  $("headline").replaceChildren(...headline(state));
  if (state.view && state.view.update) state.view.update(where().query);
  performance.mark("polled");
}

function find(text) {
  const parts = text.trim().split("/").filter(Boolean);
  const isNode = state.fleet && state.fleet.nodes.some((one) => one.name === text.trim());
  if (!parts.length) return;
  if (!isNode && parts.length === 1 && state.fleet) {
    const { nodes } = filtered(state.fleet, { q: text });
    if (nodes.length) { location.hash = `#/fleet?q=${encodeURIComponent(text.trim())}`; return; }
  }
  if (isNode || parts.length === 1 && !/^(GPU|MIG)-/.test(parts[0])) page.go("node", text.trim());
  else if (parts.length === 2) page.go("pod", ...parts);
  else page.go("device", text.trim());
}

register("fleet", "Fleet", (path, query, shared) => new FleetView(shared));

export function start() {
  $("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
  $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") find(event.target.value); });
  addEventListener("hashchange", () => { if (location.hash.startsWith("#/")) show(); else arrive(); });
  addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !(event.target instanceof HTMLInputElement)) { event.preventDefault(); $("find").focus(); }
  });
  arrive();
  follow();
}
