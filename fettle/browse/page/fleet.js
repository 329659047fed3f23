// The fleet: a row a node, a cell a device; as a picture, or as a table.

import { h, link, table } from "/page/dom.js";
import { STATES, ago, causes, counted, filtered } from "/page/model.js";
import { Grid, LEGEND, drawTile } from "/page/grid.js";

const MOST_ROWS = 200;
const RANK = { U: 0, M: 1, D: 2, W: 3, K: 4, H: 5 };

/** By what nodes are grouped unless somebody chooses: the first label that any of them has. */
function usual(fleet) {
  const place = fleet.groups.findIndex((_, i) => fleet.nodes.some((one) => !one.network && one.groups[i]));
  return place < 0 ? "nothing" : fleet.groups[place];
}

export class FleetView {
  constructor(page) {
    this.page = page;
    this.shown = null;
    const by = (name, value) => page.query({ [name]: value });
    this.q = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter nodes and devices by name", input: (event) => by("q", event.target.value) });
    this.cause = h("select", { "aria-label": "Cause", change: (event) => by("cause", event.target.value) });
    this.group = h("select", { "aria-label": "Group by", change: (event) => this.regroup(event.target.value) });
    this.unsound = h("input", { type: "checkbox", change: (event) => by("unsound", event.target.checked ? "1" : "") });
    this.asTable = h("input", { type: "checkbox", change: (event) => by("table", event.target.checked ? "1" : "") });
    this.label = h("input", { placeholder: "another label", "aria-label": "Group by another label of nodes", maxlength: 317, keydown: (event) => { if (event.key === "Enter") this.regroup(event.target.value.trim(), true); } });
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.bar = h("div", { class: "bar" },
      this.q, h("label", {}, "Cause", this.cause), h("label", {}, "Group by", this.group), this.label,
      h("label", {}, this.unsound, "only what is not Healthy"), h("label", {}, this.asTable, "as a table"),
      h("span", { class: "legend", "aria-hidden": "true" }, LEGEND.map(([words, cell]) => h("span", {}, drawTile(cell, colour, 1), words))));
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "The fleet. Arrow keys move over nodes and devices, Enter opens one. The same as a table: the box above." });
    this.spacer = h("div", {}, this.canvas);
    this.scroller = h("div", { class: "scroller", id: "fleet" }, this.spacer);
    this.rows = h("div", { id: "fleet-table" });
    this.empty = h("p", { class: "quiet", role: "status" });
    this.element = h("div", {}, this.bar, this.empty, this.scroller, this.rows);
    this.element.dataset.fills = "1";
    this.grid = new Grid({
      scroller: this.scroller, spacer: this.spacer, canvas: this.canvas, say: page.say, hint: page.hint,
      open: (node, cell) => {
        if (cell && cell.path) page.go("device", cell.path);
        else if (!node.network) page.go("node", node.name);
      },
    });
  }

  close() { this.grid.close(); }

  regroup(value, isLabel = false) {
    const label = isLabel ? value : value && this.page.state.fleet && this.page.state.fleet.groups.indexOf(value) < 3 ? "" : this.page.state.label;
    this.page.query({ by: value, label: isLabel ? value : label });
    if (isLabel) this.page.poll();
  }

  update(query) {
    const { state } = this.page, fleet = state.fleet;
    const asked = (name) => query.get(name) || "";
    if (state.label !== asked("label")) { state.label = asked("label"); }
    const isTable = asked("table") === "1";
    this.scroller.hidden = isTable || !fleet;
    this.rows.hidden = !isTable;
    if (!fleet) { this.empty.textContent = state.fleetProblem || "Waiting for the fleet …"; return; }
    const key = `${fleet.tag} ${query}`;
    if (this.shown === key) return;
    this.shown = key;
    if (document.activeElement !== this.q) this.q.value = asked("q");
    this.unsound.checked = asked("unsound") === "1";
    this.asTable.checked = isTable;
    this.choices(fleet, asked("cause"), asked("by"));
    const found = filtered(fleet, { q: asked("q"), cause: asked("cause"), unsound: asked("unsound") === "1" });
    this.empty.hidden = found.nodes.length > 0;
    this.empty.textContent = found.nodes.length ? "" : fleet.nodes.length ? "No node matches." : "No node has devices.";
    if (isTable) this.list(fleet, found);
    else this.grid.show(found.nodes, found.matches, fleet.groups.indexOf(asked("by") || usual(fleet)));
    this.canvas.setAttribute("aria-label", `The fleet: ${counted(found.nodes.length, "node")}, ${fleet.sums.D + fleet.sums.U} bad devices of ${fleet.sums.devices}. Arrow keys move over nodes and devices, Enter opens one. The same as a table: the box above.`);
  }

  choices(fleet, cause, by) {
    const option = (value, words, chosen) => h("option", { value, selected: value === chosen }, words);
    const known = causes(fleet);
    if (cause && !known.some((one) => one.cause === cause)) known.push({ cause, devices: 0 });
    this.cause.replaceChildren(option("", "any", cause), ...known.map((one) => option(one.cause, `${one.cause} (${one.devices})`, cause)));
    this.group.replaceChildren(...fleet.groups.map((one) => option(one, one, by || usual(fleet))), option("nothing", "nothing", by));
  }

  /** The same as the picture, for who reads it otherwise: what is worst comes first. */
  list(fleet, { nodes, matches }) {
    const cells = nodes.flatMap((one) => one.cells.filter(matches).map((cell) => [one, cell]));
    cells.sort((a, b) => RANK[a[1].letter] - RANK[b[1].letter] || (a[0].name < b[0].name ? -1 : a[0].name > b[0].name ? 1 : 0));
    const shown = cells.slice(0, MOST_ROWS);
    const caption = `${counted(cells.length, "device")} on ${counted(nodes.length, "node")}` + (cells.length > MOST_ROWS ? `; the first ${MOST_ROWS}, the worst first` : "");
    this.rows.replaceChildren(table(caption, [["Node", "name"], ["Device", "name"], ["State", "short"], ["Score", "number"], ["Since", "short"], "Held", "In use", "Cause"], shown.map(([one, cell]) => [
      one.network ? one.name : link(one.name, "node", one.name),
      cell.path ? link(cell.device, "device", cell.path) : cell.kind.name,
      h("span", { class: `state ${cell.letter}` }, STATES[cell.letter]),
      cell.score === null ? "" : cell.score, ago(cell.since), cell.held ? "held" : "", cell.inUse ? "yes" : "", cell.why,
    ]), "No device matches."));
  }
}
