// ---- loss, throughput and the other figures of the log

// Loss of each run less that of the first one at the same step; null where one of them is unknown.
function lossDifference(run, first) {
  const base = new Map(first.steps.step.map((step, i) => [step, first.steps.loss[i]]));
  return run.steps.step.map((step, i) => {
    const mine = run.steps.loss[i], its = base.get(step);
    return mine === null || its === null || its === undefined ? null : mine - its;
  });
}

// Curves that look equal are told apart by their differences.
function lossDifferences(node, runs, draw) {
  const [first, ...others] = runs.filter((run) => run.steps.loss);
  if (!others.length) return;
  const place = node.appendChild(el("div", {id: "loss-difference"}));
  draw(
      place, "loss", `loss less that of ${short(first.name)}`,
      (run) => run === first ? null : lossDifference(run, first));
  for (const run of others) {
    const known = lossDifference(run, first)
                      .map((value, i) => [Math.abs(value), run.steps.step[i], value])
                      .filter(([, , value]) => value !== null);
    const [most, step] = known.reduce((a, b) => (b[0] > a[0] ? b : a), [0, 0]);
    place.append(
        el("p", {class: "small"},
           !known.length ? `${run.name} has no step in common with ${first.name}.` :
               most === 0 ? `${run.name}: the same loss as ${first.name} in all ${numberOf(known.length, "step")}.` :
                            `${run.name}: the largest difference is ${most.toPrecision(3)}, at step ${step}.`));
  }
}

function steps() {
  const runs = page.runs.filter((run) => run.steps);
  if (!runs.length) return;
  const node = section("steps", "Loss and throughput", "Per optimizer step.");
  const grid = node.appendChild(el("div", {class: "two"}));
  const numbers = runs.flatMap((run) => run.steps.step), first = Math.min(...numbers), final = Math.max(...numbers),
        edge = Math.max(0.5, 0.02 * (final - first));
  const ranges = [];
  const draw = (into, column, label, valuesOf = (run) => run.steps[column]) => {
    const x_range = linked(new Bokeh.Range1d({start: first - edge, end: final + edge}), ranges);
    const figure = chart(into, `${label} by step`, {x_range, x_axis_label: "step", y_axis_label: label, height: 250});
    figure.xaxes[0].ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
    page.runs.forEach((run, r) => {
      if (!run.steps || !run.steps[column] || !valuesOf(run)) return;
      // Steps without a validation are no gaps of its curve.
      const sparse = column.startsWith("validation/"), values = valuesOf(run),
            points = values.map((y, i) => [run.steps.step[i], y === null ? NaN : y]).filter(
                ([, y]) => !sparse || !Number.isNaN(y));
      const source = new Bokeh.ColumnDataSource(
          {data: {x: points.map(([x]) => x), y: points.map(([, y]) => y), run: points.map(() => run.name)}});
      // Dashes of later runs let the equal curve of an earlier one show through.
      figure.line(
          {field: "x"}, {field: "y"},
          {source, line_color: RUN_COLORS[r % 8], line_width: 2, line_dash: r > 0 ? [7, 3 + 2 * (r % 4)] : "solid"});
      const dots = figure.scatter(
          {field: "x"}, {field: "y"},
          {source, size: run.steps.step.length > 150 ? 0 : 5, fill_color: RUN_COLORS[r % 8], line_color: null});
      hover(figure, [dots], ["step @x: <b>@y</b>", ...(several ? ["@run"] : [])], {mode: "mouse"});
    });
    return figure;
  };
  const cell = () => grid.appendChild(el("div", {}));
  draw(cell(), "loss", "loss (natural log)");
  draw(cell(), "tokens_per_second", "tokens per second");
  if (runs.some((run) => run.steps["validation/loss"]))
    draw(cell(), "validation/loss", "validation loss (natural log)");
  if (several)
    node.append(el("div", {class: "keys"}, runs.map((run) => keyOf(RUN_COLORS[page.runs.indexOf(run) % 8], run.name))));
  lossDifferences(node, runs, draw);
  const others = [...new Set(runs.flatMap((run) => Object.keys(run.steps)))].filter(
      (name) => !["step", "loss", "tokens_per_second", "validation/loss"].includes(name));
  if (!others.length) return;
  const place = el("div", {});
  const choice =
      el("select", {"aria-label": "another figure", onchange: () => show()},
         others.map((name) => el("option", {value: name}, name.replaceAll("_", " "))));
  const show = () => {
    place.replaceChildren();
    draw(place, choice.value, choice.value.replaceAll("_", " "));
  };
  if (others.includes("seconds")) choice.value = "seconds";
  node.append(el("div", {class: "small"}, "Another figure: ", choice), place);
  show();
}
