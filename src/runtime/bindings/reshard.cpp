#include "runtime/kernel_call.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

// A buffer's box with token dims scaled from units of T / positions to tokens.
layout::Box scaled(const ir::Buffer& buffer, layout::Box box, i64 unit) {
  for (int d = 0; d < box.dims; ++d)
    if (buffer.type.shape.size[static_cast<size_t>(d)] == ir::kTokens) {
      box.lo[static_cast<size_t>(d)] *= unit;
      box.hi[static_cast<size_t>(d)] *= unit;
    }
  return box;
}

}  // namespace

void run_reshard(KernelCall& call) {
  const ir::Buffer &from = call.stage.buffers[static_cast<size_t>(call.instr.in[0])],
                   &to = call.stage.buffers[static_cast<size_t>(call.instr.out[0])];
  const i64 unit = call.feeds.T / call.stage.lane.size();
  const layout::Box from_box = scaled(from, from.box[static_cast<size_t>(call.position)], unit);
  const layout::Box to_box = scaled(to, to.box[static_cast<size_t>(call.position)], unit);
  for (size_t s = 0; s < call.instr.steps.size(); ++s) {
    const layout::Part& part = call.instr.steps[s].parts[static_cast<size_t>(call.position)];
    // The second step works on what the first left in the destination.
    const at::Tensor& source = s == 0 ? call.in[0] : call.out[0];
    const layout::Box& source_box = s == 0 ? from_box : to_box;
    if (part.zero) call.out[0].zero_();
    Transfer transfer;
    for (const layout::Piece& piece : part.sends)
      if (piece.peer != part.rank)
        transfer.send(call.lane.channel.ranks[static_cast<size_t>(piece.peer)], view_of(source, source_box, scaled(from, piece.box, unit)));
    for (const layout::Piece& piece : part.receives) {
      const layout::Box box = scaled(to, piece.box, unit);
      if (piece.peer != part.rank)
        transfer.receive(call.lane.channel.ranks[static_cast<size_t>(piece.peer)], view_of(call.out[0], to_box, box), piece.add);
      else if (s == 0)
        transfer.local(view_of(call.out[0], to_box, box), view_of(source, source_box, box), piece.add);
    }
    transfer.run(*call.lane.fabric, call.lane.channel, "reshard " + from.name, ++*call.lane.row);
  }
}

}  // namespace switchyard::runtime
