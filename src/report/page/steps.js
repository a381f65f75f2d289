// ---- loss, throughput and the other figures of the log

// Loss of each run less that of the first one at the same step; null where one of them is unknown.
function lossDifference(run, first) {
  const base = new Map(first.steps.step.map((step, i) => [step, first.steps.loss[i]]));
  return run.steps.step.map((step, i) => {
    const mine = run.steps.loss[i], its = base.get(step);
    return mine === null || its === null || its === undefined ? null : mine - its;
  });
}

// Curves that look equal are distinguished by their differences.
function lossDifferences(node, runs, draw) {
  const [first, ...others] = runs.filter((run) => run.steps.loss);
  if (!others.length) return;
  const place = node.appendChild(el("div", {id: "loss-difference"}));
  const curves = curvesOf(others, ["loss"], () => "");
  draw(
      place, `loss less that of ${short(first.name)}`,
      curves.map((curve) => ({...curve, values: lossDifference(curve.run, first)})));
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

// Curves of the columns that runs have, with names and looks that differ: of one column each run has its colour, of
// several each curve. nameOf: a column's name; "" if the run's name says enough.
function curvesOf(runs, columns, nameOf) {
  const all = runs.flatMap((run) => columns.filter((column) => run.steps[column]).map((column) => ({run, column})));
  return all.map(({run, column}, k) => {
    const r = page.runs.indexOf(run), color = columns.length > 1 ? k : r, name = nameOf(column);
    return {
      run,
      values: run.steps[column],
      name: name && several ? `${name}, ${run.name}` : name || run.name,
      // Steps without a validation are no gaps of its curve, nor are those without a document of a source.
      sparse: column.includes("/"),
      color: RUN_COLORS[color % 8],
      // Dashes of later runs let the equal curve of an earlier one show through.
      dash: color >= 8 ? [2, 2 + (color >> 3)] : r > 0 ? [7, 3 + 2 * (r % 4)] : "solid"
    };
  });
}

const kMostPoints = 8000;

// The lowest and the highest of each stretch of many points [x, y], so that a single peak remains. dots: one of every
// so many.
function thinned(points, dots) {
  if (points.length <= kMostPoints) return points;
  if (dots) return points.filter((_, i) => i % Math.ceil(points.length / kMostPoints) === 0);
  const stretch = Math.ceil(2 * points.length / kMostPoints), kept = [];
  for (let first = 0; first < points.length; first += stretch) {
    let low = first, high = first;
    for (let i = first; i < Math.min(first + stretch, points.length); ++i) {
      if (!(points[low][1] <= points[i][1])) low = Number.isNaN(points[i][1]) ? low : i;
      if (!(points[high][1] >= points[i][1])) high = Number.isNaN(points[i][1]) ? high : i;
    }
    kept.push(points[Math.min(low, high)]);
    if (low !== high) kept.push(points[Math.max(low, high)]);
  }
  return kept;
}

// Draws curves by step into `into`, with linked ranges. dots: without lines.
function stepFigures(runs) {
  const first = Math.min(...runs.map(({steps}) => steps.step[0])),
        final = Math.max(...runs.map(({steps}) => last(steps.step))), edge = Math.max(0.5, 0.02 * (final - first));
  const ranges = [];
  return (into, label, curves, {dots = false} = {}) => {
    const x_range = linked(new Bokeh.Range1d({start: first - edge, end: final + edge}), ranges);
    const figure = chart(into, `${label} by step`, {x_range, x_axis_label: "step", y_axis_label: label, height: 250});
    figure.xaxes[0].ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
    curves.forEach(({run, values, name, sparse, color, dash}, c) => {
      const points = thinned(values.map((y, i) => [run.steps.step[i], y === null ? NaN : y])
                                 .filter(([, y]) => !sparse || !Number.isNaN(y)), dots);
      const source = new Bokeh.ColumnDataSource(
          {data: {x: points.map(([x]) => x), y: points.map(([, y]) => y), name: points.map(() => name)}});
      const many = points.length > 150, x = {field: "x"}, y = {field: "y"}, drawn = [];
      if (!dots) drawn.push(figure.line(x, y, {source, line_color: color, line_width: 2, line_dash: dash}));
      const size = (many ? 3 : 5) + (dots ? 2 * (curves.length - 1 - c) : 0);  // equal dots of later runs lie inside
      if (dots || !many) drawn.push(figure.scatter(x, y, {source, size, fill_color: color, line_color: null}));
      hover(
          figure, [last(drawn)], ["step @x: <b>@y</b>", ...(curves.length > 1 ? ["@name"] : [])],
          {mode: "mouse", line_policy: "nearest"});
    });
    return figure;
  };
}

const curveKeys = (curves) => el("div", {class: "keys"}, curves.map(({color, name}) => keyOf(color, name)));

// Figures of documents by part, the whole first: [label, columns].
function figuresByPart(columns) {
  const parts = columns.filter((name) => name.startsWith("validation/loss/")),
        lengths = parts.filter((name) => /\/to \d+$/.test(name)),
        sources = parts.filter((name) => !lengths.includes(name));
  const own = columns.filter((name) => name.startsWith("loss/"));
  const figures = [["loss by source", ["loss", ...own], own]];
  figures.push(["validation loss by length", ["validation/loss", ...lengths], lengths]);
  figures.push(["validation loss by source", ["validation/loss", ...sources], sources]);
  const shown = figures.filter(([, , some]) => some.length);
  if (!parts.length && columns.includes("validation/loss")) shown.push(["validation loss", ["validation/loss"]]);
  return shown;
}

function partName(column) {
  const name = column.replace(/^validation\//, "").replace(/^loss\/?/, "");
  return name === "" ? "all" : /^to \d+$/.test(name) ? `up ${name} tokens` : name;
}

function steps() {
  const runs = page.runs.filter((run) => run.steps);
  if (!runs.length) return;
  const node = section("steps", "Loss and throughput", "Per optimizer step.");
  const grid = node.appendChild(el("div", {class: "two"}));
  const draw = stepFigures(runs), columns = [...new Set(runs.flatMap((run) => Object.keys(run.steps)))];
  const single = (into, column, label) => draw(into, label, curvesOf(runs, [column], () => ""));
  const cell = () => grid.appendChild(el("div", {}));
  single(cell(), "loss", "loss (natural log)");
  single(cell(), "tokens_per_second", "tokens per second");
  const figures = figuresByPart(columns);
  for (const [label, of] of figures) {
    const curves = curvesOf(runs, of, of.length > 1 ? partName : () => ""), place = cell();
    draw(place, label, curves);
    if (curves.length > 1) place.append(curveKeys(curves));
  }
  if (several) node.append(curveKeys(curvesOf(runs, ["step"], () => "")));
  lossDifferences(node, runs, draw);
  const shown = ["step", "loss", "tokens_per_second", ...SLOWEST, ...figures.flatMap(([, of]) => of)];
  const others = columns.filter((name) => !shown.includes(name));
  if (!others.length) return;
  const place = el("div", {});
  const choice =
      el("select", {"aria-label": "another figure", onchange: () => show()},
         others.map((name) => el("option", {value: name}, name.replaceAll("_", " "))));
  const show = () => {
    place.replaceChildren();
    single(place, choice.value, choice.value.replaceAll("_", " "));
  };
  if (others.includes("seconds")) choice.value = "seconds";
  node.append(el("div", {class: "small"}, "Another figure: ", choice), place);
  show();
}
