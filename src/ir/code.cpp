#include "ir/code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::ir {

PieceRange range_of(const Segment& segment, int piece) {
  const auto instr = [&](int cut) { return static_cast<size_t>(segment.cuts.at(static_cast<size_t>(cut)).instr); };
  const int last = static_cast<int>(segment.cuts.size());
  return {piece <= 0 ? 0 : instr(piece - 1), piece == kWhole || piece == last ? segment.code.size() : instr(piece)};
}

const std::vector<int>& ending_before(const Segment& segment, size_t i) {
  const auto cut = std::ranges::lower_bound(segment.cuts, static_cast<int>(i), {}, &Cut::instr);
  if (!segment.apart && cut != segment.cuts.end() && cut->instr == static_cast<int>(i)) return cut->after;
  return i < segment.code.size() ? segment.code[i].after : segment.after;
}

bool is_collective(const Segment& segment, int piece) {
  const size_t first = range_of(segment, piece).first;
  return segment.apart && first < segment.code.size() && segment.code[first].queue == Queue::collective;
}

bool is_last_computed(const Segment& segment, int piece) {
  if (!segment.apart) return is_last(segment, piece);
  const auto computes = [](const Instr& instr) { return instr.queue == Queue::compute; };
  const auto behind = segment.code.begin() + static_cast<std::ptrdiff_t>(range_of(segment, piece).end);
  return !is_collective(segment, piece) && std::none_of(behind, segment.code.end(), computes);
}

std::vector<int> awaited_pieces(const Segment& segment, int piece) {
  std::vector<int> pieces;
  if (!segment.apart) return pieces;
  const auto await = [&](const std::vector<int>& collectives) {
    for (const int instr : collectives) {
      const auto behind = std::ranges::upper_bound(segment.cuts, instr, {}, &Cut::instr);
      const auto made = static_cast<int>(behind - segment.cuts.begin());
      if (made < piece && std::ranges::find(pieces, made) == pieces.end()) pieces.push_back(made);
    }
  };
  const PieceRange range = range_of(segment, piece);
  for (size_t i = range.first; i < range.end; ++i) await(ending_before(segment, i));
  if (range.end == segment.code.size()) await(segment.after);
  return pieces;
}

namespace {

// Units from their first to their last event in the segment, where that meets the piece.
std::vector<int> units_in(const Segment& segment, int piece, const std::vector<UnitEvent>& firsts,
                          const std::vector<UnitEvent>& lasts) {
  const PieceRange range = range_of(segment, piece);
  std::vector<int> units;
  for (const UnitEvent& first : firsts) {
    const auto last = std::ranges::find(lasts, first.unit, &UnitEvent::unit);
    if (first.instr < static_cast<int>(range.end) && last->instr >= static_cast<int>(range.first))
      units.push_back(first.unit);
  }
  return units;
}

}  // namespace

std::vector<int> units_read(const Segment& segment, int piece) {
  return units_in(segment, piece, segment.awaits, segment.last_reads);
}

std::vector<int> units_written(const Segment& segment, int piece) {
  return units_in(segment, piece, segment.first_writes, segment.releases);
}

std::vector<i64> local_size(const Buffer& buffer, int position, int positions, const Extent& extent) {
  const layout::Box& box = buffer.box[static_cast<size_t>(position)];
  std::vector<i64> size;
  for (int d = 0; d < box.dims; ++d) {
    const i64 whole = buffer.type.shape.size[static_cast<size_t>(d)];
    size.push_back(whole == kTokens           ? box.size(d) * token_unit(positions, extent.tokens)
                   : whole == kSquaredLengths ? extent.squared_lengths
                                              : box.size(d));
  }
  return size;
}

i64 local_bytes(const Buffer& buffer, int position, int positions, const Extent& extent) {
  i64 n = size_of(buffer.type.dtype);
  for (const i64 size : local_size(buffer, position, positions, extent)) n *= size;
  return n;
}

Type local_type(const Buffer& buffer, int position, int positions, double* token_share) {
  const layout::Box& box = buffer.box[static_cast<size_t>(position)];
  Type type{buffer.type.dtype, {{}, {}}};
  *token_share = 1;
  for (int d = 0; d < box.dims; ++d) {
    const i64 whole = buffer.type.shape.size[static_cast<size_t>(d)];
    if (whole == kTokens) *token_share = static_cast<double>(box.size(d)) / positions;
    type.shape.size.push_back(whole < 0 ? whole : box.size(d));
    type.shape.alignment.emplace_back();
  }
  return type;
}

bool same_sizes(const Buffer& buffer, int a, int b) {
  const layout::Box &x = buffer.box[static_cast<size_t>(a)], &y = buffer.box[static_cast<size_t>(b)];
  for (int d = 0; d < x.dims; ++d)
    if (x.size(d) != y.size(d)) return false;
  return true;
}

size_t pattern_of(const StageCode& stage, const std::vector<int>& hosts) {
  const auto known = std::ranges::find(stage.hosts, hosts);
  check(known != stage.hosts.end(), "units {}..{} aren't compiled for a replica on hosts {}", stage.first_unit,
        stage.end_unit - 1, hosts);
  return static_cast<size_t>(known - stage.hosts.begin());
}

i64 token_unit(int positions, i64 tokens) {
  check(tokens % positions == 0, "{} tokens over {} ranks of a replica", tokens, positions);
  return tokens / positions;
}

layout::Box scaled(const Buffer& buffer, layout::Box box, i64 unit) {
  for (int d = 0; d < box.dims; ++d)
    if (buffer.type.shape.size[static_cast<size_t>(d)] == kTokens) {
      box.lo[static_cast<size_t>(d)] *= unit;
      box.hi[static_cast<size_t>(d)] *= unit;
    }
  return box;
}

i64 scratch_bytes(const StageCode& stage, const Instr& reshard, size_t pattern, int position, i64 tokens) {
  const Buffer& buffer = stage.buffers[static_cast<size_t>(reshard.in[0])];
  i64 elements = 0;
  for (const layout::Box& box : reshard.exchanges[pattern]->scratch[static_cast<size_t>(position)])
    elements += scaled(buffer, box, token_unit(stage.replica, tokens)).elements();
  return elements * size_of(buffer.type.dtype);
}

LocalWork local_work(const StageCode& stage, const Instr& instr, int position) {
  std::vector<Type> in, out;
  LocalWork work;
  double other = 1;  // share of the tokens
  const auto local = [&](int b, double* part) {
    Type type = local_type(stage.buffers[static_cast<size_t>(b)], position, stage.replica.size(), part);
    const std::vector<i64>& size = type.shape.size;
    if (work.columns == 0 && size.size() == 2 && size[0] == kTokens) work.columns = static_cast<double>(size[1]);
    if (work.columns == 0 && size.size() == 2 && size[1] == kSquaredLengths)
      work.columns = static_cast<double>(size[0]);
    return type;
  };
  for (const int b : instr.in) in.push_back(local(b, in.empty() ? &work.share : &other));
  for (const int b : instr.out) out.push_back(local(b, &other));
  work.cost = instr.op->cost(in, out);
  work.cost.flops_per_token *= work.share;
  work.cost.bytes_per_token *= work.share;
  if (const double converted = std::exchange(work.cost.bytes_converted_per_token, 0); !stage.element_kernels)
    work.cost.bytes_after_per_token += converted;
  work.cost.bytes_after_per_token *= work.share;
  // Programs that have libtorch's operators on devices make the logits of all tokens at once.
  const bool at_once = stage.on_devices && !stage.element_kernels;
  if (const auto sums = instr.op->statistic_sums(stage.on_devices); sums && !at_once)
    work.chunk = static_cast<double>(sums->chunk);
  return work;
}

KeyBytes key_bytes(const StageCode& stage, const Instr& instr, int position) {
  if (!instr.op) return {};
  std::vector<Type> in;
  double share = 1;
  for (const int b : instr.in)
    in.push_back(local_type(stage.buffers[static_cast<size_t>(b)], position, stage.replica.size(), &share));
  return instr.op->key_bytes(in);
}

std::optional<StatisticSums> statistic_sums(const StageCode& stage, const Instr& instr) {
  const std::optional<StatisticSums> sums = instr.op ? instr.op->statistic_sums(stage.on_devices) : std::nullopt;
  if (!sums || stage.buffers[static_cast<size_t>(instr.in[sums->cut])].layout.split[sums->dim].empty())
    return std::nullopt;
  return sums;
}

namespace {

std::string text_of(const StageCode& stage, const Segment& segment) {
  const auto names = [&](const std::vector<int>& list) {
    std::string text;
    for (const int b : list) {
      const Buffer& buffer = stage.buffers[static_cast<size_t>(b)];
      text += fmt::format("{}%{} {}:{}", text.empty() ? "" : ", ", b, buffer.name,
                          layout::to_string(stage.replica, buffer.layout));
    }
    return text;
  };
  const auto list = [](const char* what, const char* mark, const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += fmt::format(" {}{}", mark, number);
    return text.empty() ? "" : what + text;
  };
  std::string text;
  for (size_t i = 0; i < segment.code.size(); ++i) {
    const Instr& instr = segment.code[i];
    text += fmt::format("  {} u{} {} = {}({}){}{}\n", i, instr.unit, names(instr.out),
                        instr.op ? instr.op->name() : "reshard", names(instr.in), list("  after", "", instr.after),
                        list("  drop", "%", instr.drop));
  }
  return text + (segment.after.empty() ? "" : list("  end after", "", segment.after) + "\n");
}

}  // namespace

std::string to_string(const Graph& graph, const StageCode& stage) {
  std::string text = fmt::format("units {}..{}\n", stage.first_unit, stage.end_unit - 1);
  for (const ParamUse& use : stage.params)
    text += fmt::format("  {} used {} grad {}\n", graph.param(use.param).name,
                        layout::to_string(stage.replica, use.used), layout::to_string(stage.replica, use.grad));
  return text + "forward\n" + text_of(stage, stage.forward) + "backward\n" + text_of(stage, stage.backward) +
         (stage.weight.code.empty() ? "" : "weight\n" + text_of(stage, stage.weight)) +
         (stage.joins_gradients() ? "joined\n" + text_of(stage, stage.joined) : "");
}

}  // namespace switchyard::ir
