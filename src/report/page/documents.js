// ---- where the documents lie

const kMostReplicas = 16, kMostRows = 64;

const evenShare = (share) => share.toFixed(3);

// The ring ranks of a replica's micro-batches, with their names as `switchyard show batch` has them.
function placesOf(phase, replica) {
  return phase.replicas[replica].micro_batches.flatMap(
      (ranks, m) => ranks.map((place, r) => ({...place, name: `${replica}.${m}` + (phase.ring ? `.${r}` : "")})));
}

// The text of a piece; its words stay on one line.
function pieceText([document, first, tokens], lengths) {
  const text = document < 0             ? `padding ${count(tokens)}` :
      tokens === lengths[document] ? `${document} (${count(tokens)})` :
                                     `${document} (${count(first)}\u2013${count(first + tokens)} of ${
                                         count(lengths[document])})`;
  return text.replaceAll(" ", "\u00a0").replaceAll("\u2009", "\u202f");
}

// Documents in parts have a colour each, whole ones all the same.
function pieceColor([document, , tokens], lengths) {
  if (document < 0) return IDLE_COLOR;
  return tokens === lengths[document] ? COLORS.possible : PHASE_COLORS[document % PHASE_COLORS.length];
}

// A bar for each ring rank of each micro-batch of a replica: its pieces of documents, one behind the other, by tokens.
function placesPlot(into, phase, replica, lengths) {
  const all = placesOf(phase, replica), rows = all.slice(0, kMostRows), number = rows.length;
  const pieces = rows.flatMap((row, r) => {
    let end = 0;
    return row.pieces.map((piece) => ({piece, r, row, left: end, right: (end += piece[2])}));
  });
  const figure = chart(
      into,
      `documents of replica ${replica}, by micro-batch${phase.ring ? " and ring rank" : ""}: ` +
          rows.map((row) => `${row.name} has ${numberOf(row.tokens, "token")}: ` +
                       row.pieces.slice(0, 4).map((piece) => pieceText(piece, lengths)).join(", ") +
                       (row.pieces.length > 4 ? `, and ${row.pieces.length - 4} more` : ""))
              .join("; "),
      {
        x_range: new Bokeh.Range1d({start: 0, end: 1.02 * Math.max(...rows.map((row) => row.tokens))}),
        y_range: new Bokeh.Range1d({start: number, end: 0}),
        x_axis_label: "tokens",
        height: Math.round(70 + number * Math.max(13, Math.min(26, 600 / number)))
      });
  figure.yaxes[0].ticker = new Bokeh.FixedTicker({ticks: rows.map((_, r) => r + 0.5), minor_ticks: []});
  figure.yaxes[0].major_label_overrides = new Map(rows.map((row, r) => [r + 0.5, row.name]));
  figure.ygrids[0].grid_line_color = null;
  const source = new Bokeh.ColumnDataSource({
    data: {
      left: pieces.map(({left}) => left),
      right: pieces.map(({right}) => right),
      y: pieces.map(({r}) => r + 0.5),
      color: pieces.map(({piece}) => pieceColor(piece, lengths)),
      what: pieces.map(({piece}) => (piece[0] < 0 ? "" : "document ") + pieceText(piece, lengths)),
      where: pieces.map(
          ({row}) => `${row.name}: ${numberOf(row.tokens, "token")}, ${count(row.pairs)} query-key pairs` +
              (phase.ring ? `, ${bytes(row.key_bytes)} of keys from other ranks` : ""))
    }
  });
  const bars = figure.hbar({
    y: {field: "y"},
    height: 0.8,
    left: {field: "left"},
    right: {field: "right"},
    source,
    fill_color: {field: "color"},
    line_color: COLORS.panel
  });
  hover(figure, [bars], ["<b>@what</b>", "@where"]);
  if (all.length > kMostRows) into.append(el("p", {class: "small"}, `The first ${kMostRows} of ${all.length} rows.`));
}

function placesTable(phase, replica, lengths) {
  const ring = phase.ring ? [
    ["keys from its host", (place) => count(place.keys_inside)],
    ["from other hosts", (place) => count(place.keys_across)], ["their bytes", (place) => bytes(place.key_bytes)],
    ["even share", (place) => evenShare(place.share)]
  ] :
                            [];
  const columns = [
    [phase.ring ? "ring rank" : "micro-batch", (place) => place.name], ["tokens", (place) => count(place.tokens)],
    ["padding", (place) => count(place.padding)], ["query-key pairs", (place) => count(place.pairs)], ...ring,
    ["documents (tokens)", (place) => place.pieces.map((piece) => pieceText(piece, lengths)).join(", ")]
  ];
  const rows =
      placesOf(phase, replica).slice(0, kMostRows).map((place) => columns.map(([, textOf]) => textOf(place)));
  const made = table(columns.map(([name]) => name), rows);
  made.classList.add("lists");
  return made;
}

function replicasTable(phase, order) {
  const rows = order.slice(0, kMostReplicas).map((r) => {
    const replica = phase.replicas[r];
    return [
      String(r), count(replica.micro_batches.length), count(replica.documents), count(replica.tokens),
      count(replica.padding), count(replica.pairs), evenShare(replica.share)
    ];
  });
  return table(["replica", "micro-batches", "documents", "tokens", "padding", "query-key pairs", "even share"], rows);
}

function phaseDocuments(into, phase, lengths) {
  into.append(
      el("h3", {}, `Up to ${count(phase.max_length)} tokens, strategy ${phase.strategy}: ` +
             numberOf(phase.documents, "document")));
  const above = phase.slowest / phase.bound - 1;
  into.append(
      el("p", {class: "small"},
         `The slowest replica has ${evenShare(phase.slowest)} of an even share; ` +
             (phase.ring ? `no placement has less than ${evenShare(phase.bound)}, where neither the room of ring ` +
                      `ranks nor most of their messages are counted` :
                           `whole documents allow ${evenShare(phase.bound)} at best`) +
             `, so it is ${percent(Math.max(above, 0))} above the bound.`));
  const order =
      phase.replicas.map((_, r) => r).sort((a, b) => phase.replicas[b].share - phase.replicas[a].share || a - b);
  into.append(replicasTable(phase, order));
  if (order.length > kMostReplicas)
    into.append(el("p", {class: "small"}, `The slowest ${kMostReplicas} of ${order.length} replicas.`));
  const place = el("div", {});
  const show = (replica) => {
    place.replaceChildren();
    if (!phase.replicas[replica].micro_batches.length) {
      place.append(el("p", {class: "small"}, "It has no documents."));
      return;
    }
    placesPlot(place, phase, replica, lengths);
    const rows = el("details", {}, el("summary", {}, "The same as a table"));
    rows.addEventListener(
        "toggle", () => rows.open && rows.children.length === 1 && rows.append(placesTable(phase, replica, lengths)));
    place.append(rows);
  };
  const nameOf = (r, i) => `replica ${r}` + (i === 0 && order.length > 1 ? ", the slowest" : "");
  const choice = el(
      "select", {"aria-label": "replica", onchange: () => show(Number(choice.value))},
      order.map((r, i) => el("option", {value: r}, nameOf(r, i))));
  into.append(el("div", {class: "small"}, "Documents of ", choice), place);
  show(order[0]);
}

function documents() {
  const runs = page.runs.filter((run) => run.documents && run.documents.phases.length);
  if (!runs.length) return;
  const node = section(
      "documents", "Documents",
      "Where the documents of the step lie: by replica, micro-batch and, with ring attention, ring rank, numbered " +
          "from 0 as `switchyard show batch` does. An even share is what each would have of the work if all had " +
          "equally much; with ring attention work is time, and an even share has no time for sending keys.");
  const ring = runs.some((run) => run.documents.phases.some((phase) => phase.ring));
  node.append(
      el("div", {class: "keys"}, keyOf(COLORS.possible, "whole document"),
         ring ? keyOf(PHASE_COLORS[0], "part of a document, each document with its colour") : null,
         keyOf(IDLE_COLOR, "padding")));
  for (const run of runs) {
    title(node, run);
    for (const phase of run.documents.phases) phaseDocuments(node, phase, run.documents.lengths);
  }
}
