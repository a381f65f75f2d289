// ---- words for tasks

// A function that describes tasks by their names (ir::name_of): "micro-batch 1 of 8, layers 0-15, replica 1 of strategy
// 1,4,1, 5 documents, 4 096 tokens". Where the plan is unknown: "micro-batch 1 of 8, stage 1, replica 1, phase 1".
function describer({names, phases}) {
  const ofReplica = (name) => name.match(/phase (\d+) replica (\d+) stage (\d+) (?:\w+ )?mb(\d+)(?: piece (\d+))?/);
  const microBatches = new Map();
  for (const name of names) {
    const found = ofReplica(name);
    if (!found) continue;
    const key = found[1] + " " + found[2];
    microBatches.set(key, Math.max(microBatches.get(key) || 0, Number(found[4]) + 1));
  }
  const from1 = (text) => Number(text) + 1;
  const ofPhase = (phase) => phases[phase] ? `strategy ${phases[phase].strategy}` : `phase ${from1(phase)}`;
  const place = (phase, replica, stage) => {
    const label = phases[phase];
    if (!label) return `stage ${from1(stage)}, replica ${from1(replica)}, phase ${from1(phase)}`;
    const layers = label.layers[label.group[replica]][stage];
    return `layers ${layers}, replica ${from1(replica)} of strategy ${label.strategy}`;
  };
  const contents = (phase, replica, microBatch) => {
    const held = phases[phase] && phases[phase].micro_batches[replica][microBatch];
    return held ? `, ${numberOf(held[0], "document")}, ${count(held[1])} tokens` : "";
  };
  return (name) => {
    const found = ofReplica(name);
    if (found)
      return `micro-batch ${from1(found[4])} of ${microBatches.get(found[1] + " " + found[2])}, ` +
          (found[5] ? `piece ${from1(found[5])}, ` : "") + place(found[1], found[2], found[3]) +
          contents(found[1], found[2], found[4]);
    const unit = name.match(/u(\d+)(?: r(\d+))?$/);
    if (!unit) return name;
    const phase = phaseOf(name), microBatch = name.match(/mb(\d+)/);
    return `unit ${unit[1]}` + (unit[2] === undefined ? "" : `, round ${from1(unit[2])}`) +
        (microBatch ? `, for micro-batch ${from1(microBatch[1])}` : "") + (phase === null ? "" : `, ${ofPhase(phase)}`);
  };
}

// The phase of a task by its name, or null.
function phaseOf(name) {
  const found = name.match(/phase (\d+)/);
  return found ? Number(found[1]) : null;
}
const numberOf = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
