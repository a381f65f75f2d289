// ---- the slowest rank of each step

const SLOWEST = ["slowest_rank", "slowest_rank_seconds", "median_rank_seconds"];
const kMostSlowSteps = 10;

// The steps that have a slowest rank, each with its number, the rank, seconds that it and the median rank work, and by
// how much it works longer, as a share of the step. Logs of earlier versions lack the median: then it and the share are
// null.
function slowestOf(run) {
  const {step, seconds: whole} = run.steps, [ranks, busy, median] = SLOWEST.map((name) => run.steps[name] || []);
  return step
      .map((number, i) => {
        const known = typeof busy[i] === "number" && typeof median[i] === "number" && whole[i] > 0;
        return {
          number,
          rank: ranks[i],
          busy: busy[i],
          median: known ? median[i] : null,
          share: known ? (busy[i] - median[i]) / whole[i] : null
        };
      })
      .filter(({rank}) => typeof rank === "number");
}

// The steps with the largest shares, in order of steps.
function slowestTable(node, steps) {
  const shown = [...steps]
                    .sort((a, b) => b.share - a.share || a.number - b.number)
                    .slice(0, kMostSlowSteps)
                    .sort((a, b) => a.number - b.number);
  if (shown.length < steps.length)
    node.append(
        el("p", {class: "small"},
           `The ${shown.length} of ${count(steps.length)} steps in which it exceeds the median rank most.`));
  node.append(table(
      ["step", "slowest rank", "working time", "of the median rank", "longer by", "share of the step"],
      shown.map(({number, rank, busy, median, share}) => [
        count(number), String(rank), seconds(busy), seconds(median),
        seconds(median === null ? null : busy - median), share === null ? "\u2013" : percent(share)
      ])));
}

function slowestRanks() {
  const runs = page.runs.filter((run) => run.steps && run.steps.slowest_rank);
  if (!runs.length) return;
  const node = section(
      "slowest", "Slowest ranks",
      "The rank that waits least in each step, for which the others wait, and how much longer it works than the " +
          "median rank.");
  const draw = stepFigures(runs), grid = node.appendChild(el("div", {class: "two"}));
  const curves = (field, some) => curvesOf(some, ["slowest_rank"], () => "").map((curve) => {
    const of = new Map(slowestOf(curve.run).map((one) => [one.number, one[field]]));
    return {...curve, values: curve.run.steps.step.map((number) => of.get(number) ?? null)};
  });
  const figure = draw(grid.appendChild(el("div", {})), "slowest rank", curves("rank", runs), {dots: true});
  const highest = runs.flatMap(slowestOf).reduce((most, {rank}) => Math.max(most, rank), 0);
  figure.y_range = new Bokeh.Range1d({start: -0.5, end: highest + 0.5});
  figure.yaxes[0].ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
  const known = runs.filter((run) => slowestOf(run).some(({share}) => share !== null));
  if (known.length) {
    const shares = draw(grid.appendChild(el("div", {})), "above the median, of the step", curves("share", known));
    shares.yaxes[0].formatter = new Bokeh.NumeralTickFormatter({format: "0 %"});
  }
  if (several) node.append(curveKeys(curvesOf(runs, ["step"], () => "")));
  for (const run of runs) {
    title(node, run);
    slowestTable(node, slowestOf(run));
  }
}
