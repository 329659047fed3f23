// The fleet on a canvas: only what is in sight is drawn, so 5000 nodes scroll as smoothly as 50.

import { STATES, inWords } from "/page/model.js";

const CELL = 13, INSET = 1, GAP = 4, LETTER = 6.7, LONGEST_NAME = 17, SPACE = 12, ROW = 15, HEAD = 24, MOST_IN_LINE = 16;
/** How large all is drawn: the first at which the whole fleet is in sight, or else as it is. */
const ZOOMS = [1.75, 1.5, 1.25, 1.1, 1, 0.9], MOST_TO_FIT = 600;
const FONT = "11px ui-monospace, monospace", SMALL = "600 9px system-ui, sans-serif", BOLD = "600 12px system-ui, sans-serif";

export class Grid {
  constructor({ scroller, spacer, canvas, say, hint, open }) {
    Object.assign(this, { scroller, spacer, canvas, say, hint, open });
    this.items = [];
    this.entries = [];
    this.cursor = -1;
    this.cell = -1;
    this.tiles = new Map();
    this.frame = 0;
    this.zoom = 1;
    scroller.addEventListener("scroll", () => this.later(), { passive: true });
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.hint(null));
    canvas.addEventListener("click", (event) => { const hit = this.at(event); if (hit) this.open(hit.node, hit.cell); });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => { this.arrange(); this.later(); });
    this.observer.observe(scroller);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", () => { this.tiles.clear(); this.later(); });
  }

  close() { this.observer.disconnect(); cancelAnimationFrame(this.frame); }

  show(nodes, matches, group) {
    Object.assign(this, { nodes, matches, group });
    this.arrange();
    this.later();
  }

  arrange() {
    if (!this.nodes) return;
    const { clientWidth, clientHeight } = this.scroller;
    const fits = (zoom) => this.layOut(clientWidth / zoom) * zoom <= clientHeight;
    this.zoom = (this.nodes.length <= MOST_TO_FIT && ZOOMS.find(fits)) || 1;
    this.spacer.style.height = `${Math.max(this.layOut(clientWidth / this.zoom), 1) * this.zoom}px`;
    this.cursor = Math.min(this.cursor, this.entries.length - 1);
  }

  /** Rows of nodes, as many beside each other as there is room for; how high they are together. */
  layOut(width) {
    const longest = this.nodes.reduce((most, node) => Math.max(most, node.cells.length), 1);
    const line = Math.min(longest, MOST_IN_LINE);
    const kinds = this.nodes.reduce((most, node) => Math.max(most, node.kinds.length), 1);
    const name = this.nodes.reduce((most, node) => Math.max(most, node.name.length), 4);
    this.name = Math.ceil(Math.min(name, LONGEST_NAME) * LETTER) + 8;
    this.line = line;
    this.entryWidth = this.name + line * CELL + Math.min(kinds, 4) * GAP + SPACE;
    const beside = Math.max(1, Math.floor((width - 8) / this.entryWidth));
    const groups = new Map();
    for (const node of this.nodes) {
      const key = this.group < 0 ? "" : node.groups[this.group] || "(none)";
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(node);
    }
    this.items = [];
    this.entries = [];
    let y = 4;
    for (const [name, nodes] of [...groups].sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
      if (this.group >= 0) { this.items.push({ y, height: HEAD, name, count: nodes.length }); y += HEAD; }
      for (let i = 0; i < nodes.length; i += beside) {
        const row = nodes.slice(i, i + beside);
        const lines = row.reduce((most, node) => Math.max(most, Math.ceil(node.cells.length / line)), 1);
        const item = { y, height: lines * ROW, row };
        row.forEach((node, column) => this.entries.push({ node, item, column }));
        this.items.push(item);
        y += item.height;
      }
    }
    return y + 4;
  }

  later() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  /** The first item that ends below y. */
  first(y) {
    let low = 0, high = this.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.items[middle].y + this.items[middle].height > y) high = middle; else low = middle + 1;
    }
    return low;
  }

  draw() {
    const dots = devicePixelRatio || 1, scale = dots * this.zoom, wide = this.scroller.clientWidth, high = this.scroller.clientHeight;
    if (!wide || !high || !this.nodes) return;
    const canvas = this.canvas, top = this.scroller.scrollTop / this.zoom, width = wide / this.zoom, height = high / this.zoom;
    if (canvas.width !== Math.round(wide * dots) || canvas.height !== Math.round(high * dots)) {
      canvas.width = Math.round(wide * dots);
      canvas.height = Math.round(high * dots);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
    }
    if (this.scale !== scale) { this.tiles.clear(); this.scale = scale; }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.textBaseline = "middle";
    const text = colour("--text"), quiet = colour("--quiet"), accent = colour("--accent");
    const chosen = this.cursor >= 0 ? this.entries[this.cursor] : null;
    for (let i = this.first(top); i < this.items.length && this.items[i].y < top + height; i++) {
      const item = this.items[i], y = item.y - top;
      if (!item.row) {
        context.font = BOLD;
        context.fillStyle = text;
        context.fillText(`${cut(item.name, 60)}  (${item.count})`, 6, y + HEAD / 2 + 2);
        continue;
      }
      item.row.forEach((node, column) => {
        const x = 6 + column * this.entryWidth;
        context.font = FONT;
        context.fillStyle = node.health && node.health.state !== "H" ? text : quiet;
        context.fillText(cut(node.name, LONGEST_NAME), x, y + ROW / 2);
        this.places(node, (cell, dx, dy) => {
          context.globalAlpha = this.matches(cell) ? 1 : 0.25;
          context.drawImage(this.tile(cell, colour), x + dx, y + dy, CELL, CELL);
        });
        context.globalAlpha = 1;
        if (chosen && chosen.item === item && chosen.column === column) this.outline(context, node, x, y, accent);
      });
    }
    performance.mark("fleet-drawn");
  }

  places(node, visit) {
    let place = 0, gaps = 0, before = node.cells[0] && node.cells[0].kind;
    for (const cell of node.cells) {
      if (cell.kind !== before) { gaps += 1; before = cell.kind; }
      const line = Math.floor(place / this.line);
      visit(cell, this.name + (place % this.line) * CELL + Math.min(gaps, 4) * GAP, line * ROW + 1, place);
      place += 1;
    }
  }

  outline(context, node, x, y, accent) {
    context.strokeStyle = accent;
    context.lineWidth = 2;
    if (this.cell < 0) context.strokeRect(x - 3, y + 1, this.name - 2, ROW - 2);
    this.places(node, (cell, dx, dy, place) => { if (place === this.cell) context.strokeRect(x + dx, y + dy, CELL, CELL); });
  }

  /** A picture of a cell, drawn once. */
  tile(cell, colour) {
    const key = `${cell.letter}${cell.held ? 1 : 0}${cell.inUse ? 1 : 0}`;
    let tile = this.tiles.get(key);
    if (!tile) {
      tile = drawTile(cell, colour, this.scale || 1);
      this.tiles.set(key, tile);
    }
    return tile;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) / this.zoom, y = (event.clientY - box.top + this.scroller.scrollTop) / this.zoom;
    const item = this.items[this.first(y)];
    if (!item || !item.row || y < item.y) return null;
    const column = Math.floor((x - 6) / this.entryWidth), node = item.row[column];
    if (!node || x < 6) return null;
    const inX = x - 6 - column * this.entryWidth, inY = y - item.y;
    let found = null;
    this.places(node, (cell, dx, dy) => { if (inX >= dx && inX < dx + CELL && inY >= dy && inY < dy + CELL) found = cell; });
    return found || inX < this.name ? { node, cell: found } : null;
  }

  hover(event) {
    const hit = this.at(event);
    this.hint(hit ? inWords(hit.node, hit.cell) : null, event.clientX, event.clientY);
  }

  key(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    if (this.cursor < 0 && this.entries.length) { this.cursor = 0; this.cell = -1; }
    const entry = this.entries[this.cursor];
    if (!entry) return;
    if (event.key in moves) {
      this.cell += moves[event.key];
      if (this.cell >= entry.node.cells.length) { this.cursor = Math.min(this.cursor + 1, this.entries.length - 1); this.cell = -1; }
      else if (this.cell < -1) { this.cursor = Math.max(this.cursor - 1, 0); this.cell = this.entries[this.cursor].node.cells.length - 1; }
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.step(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Home") { this.cursor = 0; this.cell = -1; }
    else if (event.key === "End") { this.cursor = this.entries.length - 1; this.cell = -1; }
    else if (event.key === "Enter") this.open(entry.node, entry.node.cells[this.cell] || null);
    else return;
    event.preventDefault();
    this.intoSight();
  }

  /** To the next row with an entry in this column, or near it. */
  step(by) {
    const from = this.entries[this.cursor];
    for (let i = this.cursor + by; i >= 0 && i < this.entries.length; i += by) {
      const one = this.entries[i];
      if (one.item !== from.item && (one.column === from.column || (one.column < from.column && one.column === one.item.row.length - 1))) {
        this.cursor = i;
        this.cell = Math.min(this.cell, one.node.cells.length - 1);
        return;
      }
    }
  }

  intoSight() {
    const entry = this.entries[this.cursor], view = this.scroller, y = entry.item.y * this.zoom, height = entry.item.height * this.zoom;
    if (y < view.scrollTop) view.scrollTop = y - HEAD;
    else if (y + height > view.scrollTop + view.clientHeight) view.scrollTop = y + height - view.clientHeight + 4;
    this.say(inWords(entry.node, entry.node.cells[this.cell]));
    this.later();
  }
}

/** Colour and letter for the state, stripes if held, a ring if in use. */
export function drawTile(cell, colour, scale) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(CELL * scale);
  const context = tile.getContext("2d"), size = CELL - 2 * INSET;
  context.scale(tile.width / CELL, tile.width / CELL);
  context.fillStyle = colour(`--${cell.letter}`);
  context.fillRect(INSET, INSET, size, size);
  if (cell.held) {
    context.save();
    context.beginPath();
    context.rect(INSET, INSET, size, size);
    context.clip();
    context.strokeStyle = colour("--back");
    context.lineWidth = 1.4;
    for (let i = -CELL; i < CELL; i += 4) { context.beginPath(); context.moveTo(i, CELL); context.lineTo(i + CELL, 0); context.stroke(); }
    context.restore();
    context.fillRect(3, 2.5, CELL - 6, CELL - 5);  // so that the letter can be read
  }
  if (cell.letter === "M") {
    context.setLineDash([2, 2]);
    context.strokeStyle = colour("--quiet");
    context.strokeRect(INSET + 0.5, INSET + 0.5, size - 1, size - 1);
    context.setLineDash([]);
  }
  if (cell.inUse) {
    context.strokeStyle = colour("--text");
    context.lineWidth = 1.3;
    context.strokeRect(INSET + 0.65, INSET + 0.65, size - 1.3, size - 1.3);
  }
  context.fillStyle = colour(`--letter-${cell.letter}`);
  context.font = SMALL;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(cell.letter === "K" ? "?" : cell.letter, CELL / 2, CELL / 2 + 0.5);
  return tile;
}

export const LEGEND = [
  ...Object.keys(STATES).map((letter) => [STATES[letter], { letter, held: false, inUse: false }]),
  ["held", { letter: "H", held: true, inUse: false }],
  ["in use", { letter: "H", held: false, inUse: true }],
];

function cut(name, most) {
  if (name.length <= most) return name;
  const tail = Math.floor((most - 1) / 2);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(-tail)}`;
}
