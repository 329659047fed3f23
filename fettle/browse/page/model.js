// What /fleet says, as objects: nodes with kinds of devices, each with cells.

export const STATES = { H: "Healthy", D: "Degraded", U: "Unhealthy", K: "Unknown", W: "Withdrawn", M: "Missing" };
export const LETTERS = { Healthy: "H", Degraded: "D", Unhealthy: "U", Unknown: "K" };
const HELD = 1;

export function decode(told) {
  const text = (i) => told.texts[i];
  const nodes = told.nodes.map(([name, groups, score, state, since, cause, why, flags, kinds]) =>
    node(name, groups.map(text), { score, state, since, cause: text(cause), why: text(why), held: !!(flags & HELD) },
      kinds.map((kind) => decodeKind(kind, told, name))));
  for (const kind of told.network) {
    const one = decodeKind(kind, told, "");
    nodes.push({ ...node(`${one.name} ${one.pool}`, told.groups.map(() => "network"), null, [one]), network: true });
  }
  return { tag: told.tag, generation: told.generation, groups: told.groups, nodes, sums: { ...sums(nodes), missing: told.missing } };
}

function node(name, groups, health, kinds) {
  const cells = kinds.flatMap((kind) => kind.cells);
  return { name, groups, health, kinds, cells, lower: name.toLowerCase(), more: kinds.reduce((n, kind) => n + kind.more, 0) };
}

function decodeKind([name, pool, layout, letters, more, details, used], told, nodeName) {
  const kind = { name: told.texts[name], pool: told.texts[pool], more, used };
  const about = new Map(details.map(([place, score, since, cause, why, flags]) =>
    [place, { score, since, cause: told.texts[cause], why: told.texts[why], held: !!(flags & HELD) }]));
  kind.cells = told.layouts[layout].map((device, place) => {
    const letter = letters[place].toUpperCase();
    const known = about.get(place);
    return {
      kind, device, letter, inUse: letter !== letters[place],
      score: known ? known.score : letter === "H" ? 1 : null, since: known ? known.since : 0,
      cause: known ? known.cause : "", why: known ? known.why : "", held: known ? known.held : false,
      path: !device ? "" : kind.pool ? `${kind.name}/${kind.pool}/${device}` : `${nodeName}/${kind.name}/${device}`,
    };
  });
  return kind;
}

function sums(nodes) {
  const found = { H: 0, D: 0, U: 0, K: 0, W: 0, M: 0, held: 0, inUse: 0, nodes: 0, badNodes: 0 };
  for (const one of nodes) {
    let bad = false;
    for (const cell of one.cells) {
      found[cell.letter] += 1;
      if (cell.held) found.held += 1;
      if (cell.inUse) found.inUse += 1;
      if (cell.letter === "D" || cell.letter === "U") bad = true;
    }
    found.H += one.more;
    for (const kind of one.kinds) found.inUse += kind.used;
    if (!one.network) found.nodes += 1;
    if (bad) found.badNodes += 1;
  }
  found.devices = found.H + found.D + found.U + found.K + found.W;
  return found;
}

/** Causes of devices that are not Healthy, the commonest first. */
export function causes(fleet) {
  const found = new Map();
  for (const one of fleet.nodes) {
    for (const cell of one.cells) {
      const cause = causeOf(cell);
      if (!cause) continue;
      const row = found.get(cause) || { cause, devices: 0, nodes: new Set(), why: cell.why || UNTOLD[cell.letter] || "" };
      row.devices += 1;
      row.nodes.add(one.name);
      found.set(cause, row);
    }
  }
  return [...found.values()].sort((a, b) => b.devices - a.devices || (a.cause < b.cause ? -1 : 1));
}

const UNTOLD = { W: "its node offers fewer than it has; which one is not told", M: "its node has fewer than are expected" };

export function causeOf(cell) {
  if (cell.letter === "M") return "missing";
  if (cell.letter === "W") return "withdrawn by its device plugin";
  if (cell.letter === "H" && !cell.held) return "";
  return cell.cause || STATES[cell.letter];
}

/** Nodes that a filter lets pass, and how to tell whether a cell matches. */
export function filtered(fleet, { q = "", cause = "", unsound = false }) {
  const needle = q.trim().toLowerCase();
  const matches = (cell) => (!cause || causeOf(cell) === cause) && (!unsound || cell.letter !== "H" || cell.held);
  const nodes = fleet.nodes.filter((one) =>
    (!needle || one.lower.includes(needle) || one.cells.some((cell) => cell.device.toLowerCase().includes(needle))) &&
    ((!cause && !unsound) || one.cells.some(matches)));
  return { nodes, matches };
}

export function ago(unix, now = Date.now() / 1000) {
  if (!unix) return "";
  const seconds = now - unix;
  if (seconds < 0) return `in ${duration(-seconds)}`;
  return `${duration(seconds)} ago`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** How many of what: `1 pod`, `2 pods`. */
export const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export const when = (unix) => (unix ? new Date(unix * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "");

/** A cell in words, for the hint and for screen readers. */
export function inWords(one, cell) {
  if (!cell) {
    const health = one.health;
    if (!health) return one.name;
    const worse = ["U", "D"].map((letter) => [one.cells.filter((each) => each.letter === letter).length, STATES[letter]]).filter(([n]) => n);
    return [`node ${one.name}: ${STATES[health.state]}, score ${health.score}`, worse.map(([n, state]) => `${n} of ${counted(one.cells.length + one.more, "device")} ${state}`).join(", "), health.since ? `since ${when(health.since)}` : "", health.held ? "held" : "", health.why].filter(Boolean).join("\n");
  }
  const name = cell.device || `one of ${cell.kind.name}`;
  const score = cell.score === null ? "" : `, score ${cell.score}`;
  return [`${one.name} · ${name}: ${STATES[cell.letter]}${score}`,
    [cell.held ? "held" : "", cell.inUse ? "in use" : ""].filter(Boolean).join(", "),
    cell.since ? `since ${when(cell.since)} (${ago(cell.since)})` : "", cell.why].filter(Boolean).join("\n");
}
