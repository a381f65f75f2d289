// ---- buckets, traffic, switches and candidates

function buckets() {
  const runs = page.runs.filter((run) => run.buckets.length);
  if (!runs.length) return;
  const node = section(
      "buckets", "Strategies and buckets",
      "The buckets of the step shown. Padding is the share of computed tokens that belong to no document. " +
          "Time is from the start of a bucket's first task to the end of its last; buckets may overlap.");
  for (const run of runs) {
    title(node, run);
    const measured = run.buckets.some((row) => row.measured_seconds !== null),
          predicted = run.buckets.some((row) => row.predicted_seconds !== null);
    const times = [
      [predicted, "predicted time", "predicted_seconds"], [measured, "measured time", "measured_seconds"]
    ].filter(([there]) => there);
    const rows = run.buckets.map(
        (row) =>
            [row.strategy,
             row.min_length === null ? "not used" : `${count(row.min_length)}\u2013${count(row.max_length)}`,
             row.ranks, row.replicas, count(row.documents), count(row.tokens), count(row.micro_batches),
             percent(row.padding_share), ...times.map(([, , field]) => seconds(row[field]))]);
    node.append(table(
        [
          "strategy (dp,tp,pp)", "document length", "ranks", "replicas", "documents", "tokens", "micro-batches",
          "padding", ...times.map(([, text]) => text)
        ],
        rows));
  }
}

function links() {
  const runs = page.runs.filter((run) => run.links.length);
  if (!runs.length) return;
  const node = section("links", "Bytes by class of link", "Bytes that all ranks send in the step, as planned.");
  const most = Math.max(...runs.flatMap((run) => run.links.flatMap((use) => [use.intra, use.inter])), 1);
  const cell = (value, color) =>
      el("span", {}, bytes(value),
         el("i", {class: "bar", style: {background: color, width: `${Math.round((160 * value) / most)}px`}}));
  for (const run of runs) {
    title(node, run);
    const sum = (field) => run.links.reduce((total, use) => total + use[field], 0);
    const rows = run.links.map((use) => [use.what, cell(use.intra, "#4e79a7"), cell(use.inter, "#d9772b")]);
    const made =
        table(["", "inside hosts", "between hosts"], [...rows, ["all", bytes(sum("intra")), bytes(sum("inter"))]]);
    for (const td of made.querySelectorAll("td:not(:first-child), th:not(:first-child)")) td.style.textAlign = "left";
    node.append(made);
  }
}

// A colour from near the background to far from it, by the share of the largest cell.
function shade(share) {
  const from = dark ? [42, 57, 76] : [222, 232, 243], to = dark ? [156, 200, 245] : [23, 55, 94];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join(",")})`;
}

function matrix(into, plan) {
  const box = into.appendChild(el("div", {class: "matrix"}, el("h3", {}, plan.title)));
  const word = plan.by_host ? "host" : "rank", most = Math.max(...plan.cells.map((cell) => cell[2]), 0);
  const bound = plan.inter_bound === null ? "" : ` (lower bound for any plan: ${bytes(plan.inter_bound)})`;
  box.append(
      el("p", {},
         plan.cells.length ? `${bytes(plan.intra)} inside hosts, ${bytes(plan.inter)} between hosts${bound}` :
                             "Nothing is sent: every rank already has what it needs."));
  if (!plan.cells.length) return;
  const ends = () => new Bokeh.Range1d({start: -0.5, end: plan.size - 0.5});
  const figure = chart(
      box, plan.title + ": bytes between each pair of " + word + "s", {
        x_range: ends(),
        y_range: new Bokeh.Range1d({start: plan.size - 0.5, end: -0.5}),
        sizing_mode: "fixed",
        width: 320,
        height: 300,
        x_axis_label: `to ${word}`,
        y_axis_label: `from ${word}`,
        toolbar_location: null
      },
      "both");
  figure.background_fill_color = COLORS.faint;
  for (const axis of [figure.xaxes[0], figure.yaxes[0]])
    axis.ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
  for (const grid of [...figure.xgrids, ...figure.ygrids]) grid.grid_line_color = null;
  const source = new Bokeh.ColumnDataSource({
    data: {
      x: plan.cells.map((c) => c[1]),
      y: plan.cells.map((c) => c[0]),
      text: plan.cells.map((c) => bytes(c[2])),
      color: plan.cells.map((c) => shade(c[2] / most))
    }
  });
  const cells = figure.rect({
    x: {field: "x"},
    y: {field: "y"},
    width: 1,
    height: 1,
    source,
    fill_color: {field: "color"},
    line_color: plan.size > 24 ? null : COLORS.panel
  });
  hover(figure, [cells], [`${word} @y \u2192 ${word} @x: <b>@text</b>`]);
  box.append(
      el("div", {class: "keys"}, keyOf(shade(1), bytes(most)), keyOf(shade(0.5), bytes(Math.round(most / 2))),
         keyOf(COLORS.faint, "nothing")));
}

function matrices() {
  const runs = page.runs.filter((run) => run.matrices.length);
  if (!runs.length) return;
  const node = section(
      "switches", "Switches",
      "Bytes sent between ranks: parameters to the next strategy, in order of execution, and gradients to home. " +
          "Stronger is more; each matrix has its own scale.");
  for (const run of runs) {
    title(node, run);
    const grid = node.appendChild(el("div", {class: "matrices"}));
    for (const plan of run.matrices) matrix(grid, plan);
  }
}

const kLongestLabel = 44;  // characters, so that half the page is left for bars

// Labels of plans, numbered, as short as they can be while they differ: cut to kLongestLabel, around the first
// difference from the most similar name, or whole. On a narrow screen the number alone; a list has the names.
function labelsOf(names) {
  if (narrow) return names.map((_, i) => String(i + 1));
  const cut = (name) => {
    if (name.length <= kLongestLabel) return name;
    const sharedWith = (other) => {
      let length = 0;
      while (length < other.length && other[length] === name[length]) ++length;
      return length;
    };
    const shared = Math.max(0, ...names.filter((other) => other !== name).map(sharedWith));
    if (shared < kLongestLabel - 1) return name.slice(0, kLongestLabel - 1) + "\u2026";
    const end = Math.min(name.length, shared + 22), start = end - 32;
    return name.slice(0, 9) + "\u2026" + name.slice(start, end) + (end < name.length ? "\u2026" : "");
  };
  const short = names.map(cut);
  return names.map(
      (name, i) => `${i + 1}  ${short.filter((label) => label === short[i]).length > 1 ? name : short[i]}`);
}

function candidates() {
  const runs = page.runs.filter((run) => run.candidates.length);
  if (!runs.length) return;
  const node = section(
      "candidates", "Plan candidates",
      "Predicted time of the same step, and the highest peak of any rank with its tasks in the worst order, which " +
          "has to fit the memory. In the predicted order a peak may be lower. " +
          "Green: the plan of this job; grey: above the memory limit, listed last.");
  for (const run of runs) {
    title(node, run);
    const able =
        run.candidates.filter((c) => c.seconds !== null).sort((a, b) => b.fits - a.fits || a.seconds - b.seconds);
    const limit = run.memory ? run.memory.budget : 0;
    const color = (c) => (!c.fits ? COLORS.excluded : c.chosen ? COLORS.chosen : COLORS.possible);
    const grid = node.appendChild(el("div", {class: "two"}));
    const draw = (field, label, text, unit) => {
      const into = grid.appendChild(el("div", {})), names = labelsOf(able.map((c) => c.name)),
            most = Math.max(...able.map((c) => c[field] || 0));
      const figure =
          chart(into, `${label} of each plan: ` + able.map((c) => `${c.name} ${text(c[field])}`).join("; "), {
            x_range: new Bokeh.Range1d({start: 0, end: 1.25 * most / unit}),  // with room for the values
            y_range: new Bokeh.FactorRange({factors: [...names].reverse()}),
            height: 70 + 26 * able.length,
            x_axis_label: label
          });
      const source = new Bokeh.ColumnDataSource({
        data: {
          y: names,
          name: able.map((c) => c.name),
          right: able.map((c) => c[field] / unit),
          color: able.map(color),
          text: able.map((c) => text(c[field])),
          fits: able.map((c) => (c.fits ? "" : "above the memory limit")),
          remark: able.map((c) => c.remark)
        }
      });
      const bars = figure.hbar({
        y: {field: "y"},
        height: 0.75,
        left: 0,
        right: {field: "right"},
        source,
        fill_color: {field: "color"},
        line_color: null
      });
      figure.text({field: "right"}, {field: "y"}, {field: "text"}, {
        source,
        level: "overlay",  // above the line of the limit
        x_offset: 4,
        text_baseline: "middle",
        text_font_size: "12px",
        text_color: COLORS.ink,
        background_fill_color: COLORS.panel
      });
      hover(figure, [bars], ["<b>@name</b> @text", "@fits @remark"]);
      return figure;
    };
    const [timeName, time] = timeUnit(Math.max(...able.map((c) => c.seconds), 1e-9)),
                     [byteName, size] = byteUnit(Math.max(...able.map((c) => c.peak || 0), limit));
    if (able.length) {
      draw("seconds", `predicted step, ${timeName}`, seconds, 1 / time);
      const figure = draw("peak", `highest peak in the worst order, ${byteName}`, bytes, size);
      if (limit > 0) figure.add_layout(line(limit / size, "height", COLORS.limit, "dashed"));
    }
    if (narrow || able.some((c) => c.name.length > kLongestLabel))
      node.append(
          el("ol", {class: "small"},
             ...able.map(
                 (c) => el("li", {}, `${c.name}: ${seconds(c.seconds)}${c.fits ? "" : ", above the memory limit"}`))));
    const unable = run.candidates.filter((c) => c.seconds === null);
    if (unable.length)
      node.append(
          el("p", {class: "small"}, "Not possible: " + unable.map((c) => `${c.name} (${c.remark})`).join("; ")));
  }
}
