#include <algorithm>

#include "compiler/wire.hpp"
#include "runtime/group_calls.hpp"
#include "runtime/tensors.hpp"
#include "runtime/transfer.hpp"

namespace switchyard::runtime {

Reshard::Reshard(const KernelCall& call)
    : from_(call.stage.buffers[static_cast<size_t>(call.instr.in[0])]),
      to_(call.stage.buffers[static_cast<size_t>(call.instr.out[0])]),
      exchange_(*call.instr.exchanges[call.replica.pattern]),
      position_(static_cast<size_t>(call.position)),
      unit_(ir::token_unit(call.stage.replica, call.feeds.T)),
      number_(*call.replica.collective_number),
      replica_(call.replica),
      encoding_(compiler::rule_of(call.replica.compression, call.instr)),
      input_(call.in[0]),
      output_(call.out[0]) {
  *call.replica.collective_number += static_cast<i64>(exchange_.steps.size());
  const i64 bytes = ir::scratch_bytes(call.stage, call.instr, call.replica.pattern, call.position, call.feeds.T);
  if (bytes > 0) scratch_ = empty({bytes / size_of(from_.type.dtype)}, from_.type.dtype, input_.device());
  if (encoding_.codec == codecs::Codec::none) return;
  const i64 room = compiler::reshard_room(encoding_, call.stage, call.instr, replica_.pattern, call.position,
                                          call.feeds.T, replica_.collectives.ranks, replica_.fabric->cluster());
  if (room > 0) room_ = empty({room}, DType::u8, at::kCPU);
}

codecs::Codec Reshard::codec_of(const layout::Piece& piece) const {
  if (encoding_.codec == codecs::Codec::none) return codecs::Codec::none;
  return compiler::codec_of(encoding_, from_.type.dtype, ir::scaled(from_, piece.box, unit_).elements(),
                            replica_.collectives.ranks[position_], rank_of(piece), replica_.fabric->cluster());
}

at::Tensor Reshard::view(layout::Place place, const layout::Box& units) const {
  const layout::Box box = ir::scaled(from_, units, unit_);
  if (place == layout::Place::input) return view_of(input_, ir::scaled(from_, from_.box[position_], unit_), box);
  if (place == layout::Place::output) return view_of(output_, ir::scaled(to_, to_.box[position_], unit_), box);
  i64 before = 0;
  for (auto other = exchange_.scratch[position_].begin(); *other != units; ++other)
    before += ir::scaled(from_, *other, unit_).elements();
  std::vector<i64> size;
  for (int d = 0; d < box.dims; ++d) size.push_back(box.size(d));
  return scratch_.narrow(0, before, box.elements()).view(size);
}

// The longest stretch that begins with this step.
const ServedStretch* Reshard::served_from(size_t step) const {
  if (!replica_.served || encoding_.codec != codecs::Codec::none) return nullptr;
  const auto of_exchange = replica_.served->find(&exchange_);
  if (of_exchange == replica_.served->end()) return nullptr;
  const auto found = std::ranges::find(of_exchange->second, step, [](const auto& s) { return s.stretch->first; });
  return found == of_exchange->second.end() ? nullptr : &*found;
}

void Reshard::run(const ServedStretch& served, i64 number) {
  const layout::GroupCollective& group = *served.group;
  const bool gathers = group.call == GroupCall::all_gather;
  std::vector<at::Tensor> pieces;
  for (const layout::Box& piece : group.pieces)
    pieces.push_back(view(gathers ? layout::Place::output : served.stretch->source, piece));
  const layout::Box& own = group.pieces[group.pieces.size() == 1 ? 0 : served.place];
  const at::Tensor mine = view(gathers ? served.stretch->source : layout::Place::output, own);
  Transfer transfer;
  if (gathers)
    transfer.collective(group.call, served.ranks, {mine}, pieces, false);
  else
    transfer.collective(group.call, served.ranks, pieces, {mine}, false);
  transfer.run(*replica_.fabric, replica_.collectives, "reshard " + from_.name, number);
}

void Reshard::run() {
  i64 number = number_;
  for (size_t s = 0; s < exchange_.steps.size(); ++s) {
    if (const ServedStretch* served = served_from(s)) {
      const size_t steps = served->stretch->end - s;
      number += static_cast<i64>(steps);
      run(*served, number);
      s += steps - 1;
      continue;
    }
    const layout::Part& part = exchange_.steps[s].parts[position_];
    if (part.zero) output_.zero_();
    Transfer transfer(room_);
    for (const layout::Piece& piece : part.sends)
      if (piece.peer != part.rank) transfer.send(rank_of(piece), view(piece.place, piece.box), codec_of(piece));
    for (const layout::Piece& piece : part.receives) {
      if (piece.peer != part.rank)
        transfer.receive(rank_of(piece), view(piece.place, piece.box), piece.add, codec_of(piece));
      else
        transfer.local(view(piece.place, piece.box), view(layout::Place::input, piece.box), piece.add);
    }
    transfer.run(*replica_.fabric, replica_.collectives, "reshard " + from_.name, ++number);
  }
}

void run_reshard(KernelCall& call) { Reshard(call).run(); }

}  // namespace switchyard::runtime
