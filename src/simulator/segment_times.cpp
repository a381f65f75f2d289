#include "simulator/segment_times.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "compiler/wire.hpp"
#include "cost/compute_cost.hpp"
#include "ir/statistic_groups.hpp"
#include "simulator/coding_time.hpp"

namespace switchyard::simulator {
namespace {

constexpr double kManyFlops = 1e15, kManyBytes = 1e12;  // a call that fills the device
constexpr double kManySeconds = 1e9;

auto numbers_of(const ir::LocalWork& work) {
  const ir::Cost& c = work.cost;
  return std::tuple(c.flops_per_token, c.flops_per_pair, c.flops_per_square, c.bytes_per_token, c.bytes_per_square,
                    c.bytes_fixed, c.bytes_accumulated, c.bytes_after_per_token, c.narrowest, c.backward, work.share,
                    work.columns, work.chunk);
}

auto numbers_of(const cost::Message& message) {
  return std::tuple(message.from, message.to, message.bytes, message.summed);
}

template <typename T>
bool same_list(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return numbers_of(x) == numbers_of(y); });
}

// Products run in the type of their activations.
DType type_of(const ir::StageCode& stage, const ir::Instr& instr) {
  for (const int b : instr.in)
    if (const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(b)]; buffer.kind != ir::ValueKind::feed)
      return buffer.type.dtype;
  return stage.buffers[static_cast<size_t>(instr.out[0])].type.dtype;
}

// Seconds of a piece with as many attention pairs as one document of T tokens has, to compare positions.
double total(const Piece& piece, i64 T) {
  return piece.fixed + (0.5 * piece.per_pair + piece.per_square) * static_cast<double>(T) * static_cast<double>(T);
}

void append(SegmentTimes& times, const Piece& piece) {
  const bool marked = (!times.awaits.empty() && times.awaits.back().before == times.pieces.size()) ||
                      (!times.releases.empty() && times.releases.back().before == times.pieces.size());
  const auto differs = [&](const Piece& last) {
    return last.exchange != piece.exchange || last.needs != piece.needs || piece.queue == ir::Queue::collective ||
           last.share != 1 || piece.share != 1;
  };
  if (times.pieces.empty() || marked || differs(times.pieces.back())) {
    times.pieces.push_back(piece);
    return;
  }
  times.pieces.back().fixed += piece.fixed;
  times.pieces.back().per_pair += piece.per_pair;
  times.pieces.back().per_square += piece.per_square;
  if (piece.end == 0) return;
  if (times.pieces.back().end == 0) times.pieces.back().first = piece.first;
  times.pieces.back().end = piece.end;
}

// Computing lasts until ranks wait for one another; where they never do, they compute for longer than the curve covers.
void disturb(SegmentTimes& times, const cluster::EfficiencyCurve& curve, i64 T) {
  std::vector<Piece>& pieces = times.pieces;
  const auto computes = [&](size_t i) { return pieces[i].what == Activity::compute; };
  const bool alone = std::ranges::all_of(pieces, [](const Piece& piece) { return piece.what == Activity::compute; });
  int needs = 0;
  const auto waits = [&](size_t i) {
    const bool collective = pieces[i].queue == ir::Queue::collective;
    return !collective && (!computes(i) || std::exchange(needs, std::max(needs, pieces[i].needs)) < pieces[i].needs);
  };
  for (size_t first = 0, end = 0; first < pieces.size(); first = end) {
    double seconds = 0;
    for (end = first; end == first || (end < pieces.size() && !waits(end)); ++end)
      if (computes(end)) seconds += total(pieces[end], T);
    const double share = curve.at(alone ? kManySeconds : seconds);
    for (size_t i = first; i < end; ++i)
      if (computes(i))
        for (double* part : {&pieces[i].fixed, &pieces[i].per_pair, &pieces[i].per_square}) *part /= share;
  }
}

// Seconds of all pieces in their queues, as if those that go on side by side did not slow each other down.
double duration(const std::vector<Piece>& pieces, i64 T) {
  Queues queues;
  std::vector<Part> parts;
  for (const Piece& piece : pieces) queues.add(piece, total(piece, T), parts);
  queues.finish(parts);
  double sum = 0;
  for (const Part& part : parts) sum += part.seconds;
  return sum;
}

}  // namespace

bool same_sizes(const ir::StageCode& stage, const ir::Instr& instr, int a, int b) {
  const auto same = [&](int buffer) { return ir::same_sizes(stage.buffers[static_cast<size_t>(buffer)], a, b); };
  return std::ranges::all_of(instr.in, same) && std::ranges::all_of(instr.out, same);
}

// Gradients go backwards.
cost::Exchange exchange_of(const PassedKeys& passed, const compiler::RingKeys& keys, size_t round,
                           const codecs::Rule& encoding, const cluster::Hardware& hardware,
                           const cluster::Cluster& placement) {
  std::vector<cost::Message> messages;
  CodingTime coding(hardware.device);
  for (size_t position = 0; position < passed.columns.size(); ++position) {
    const batch::KeyExchange& exchange = keys.exchanges[position];
    const auto& rounds = passed.summed ? exchange.returns : exchange.rounds;
    if (round >= rounds.size()) continue;
    for (const batch::KeyMessage& message : rounds[round]) {
      int from = keys.ranks[static_cast<size_t>(message.from)][position],
          to = keys.ranks[static_cast<size_t>(message.to)][position];
      if (passed.summed) std::swap(from, to);
      const i64 columns = passed.columns[position], elements = message.count * columns;
      messages.push_back(
          {.from = from,
           .to = to,
           .bytes = compiler::key_wire_bytes(encoding, passed.type, message.count, columns, from, to, placement),
           .summed = passed.summed});
      const codecs::Codec codec = compiler::codec_of(encoding, passed.type, elements, from, to, placement);
      for (int part = 0; part < 2; ++part) coding.add(codec, passed.type, elements, from, to);
    }
  }
  cost::Exchange all = cost::exchange_over(hardware, placement, messages);
  all.time.count += coding.seconds();
  return all;
}

SegmentTimer::SegmentTimer(const ir::StageCode& stage, const ir::Segment& segment, int piece,
                           const std::vector<int>& ranks, const cluster::Hardware& hardware,
                           const cluster::Cluster& placement, const config::Compression& compression)
    : stage_(stage),
      segment_(segment),
      piece_(piece),
      range_(ir::range_of(segment, piece)),
      ranks_(ranks),
      hardware_(hardware),
      placement_(placement),
      compression_(compression) {
  for (size_t i = range_.first; i < range_.end; ++i) add(segment.code[i]);
}

void SegmentTimer::add(const ir::Instr& instr) {
  pieces_.emplace_back();
  const auto buffer = [&](int b) -> const ir::Buffer& { return stage_.buffers[static_cast<size_t>(b)]; };
  if (!instr.op) {
    const ir::Type& type = buffer(instr.in[0]).type;
    const size_t pattern = ir::pattern_of(stage_, ranks_, placement_);
    for (const layout::Step& step : instr.exchanges[pattern]->steps) {
      Exchange exchange{.messages = {},
                        .type = type.dtype,
                        .by_tokens = ir::has_dim(type, ir::kTokens),
                        .encoding = compiler::rule_of(compression_, instr)};
      for (const layout::Part& part : step.parts) {
        i64 own = 0;
        for (const layout::Piece& piece : part.receives) {
          if (piece.peer == part.rank) own += piece.box.elements();
          exchange.messages.push_back({.from = ranks_[static_cast<size_t>(piece.peer)],
                                       .to = ranks_[static_cast<size_t>(part.rank)],
                                       .bytes = piece.box.elements() * size_of(type.dtype),
                                       .summed = piece.add});
        }
        exchange.copied = std::max(exchange.copied, own);
      }
      add_kind(std::move(exchange));
    }
    return;
  }
  const bool passes_keys = ir::key_bytes(stage_, instr, 0).all() > 0;  // the same on all positions
  if (passes_keys) add_keys(instr, false);
  Computation computation{.op = instr.op.get(), .type = type_of(stage_, instr), .positions = {}};
  for (int position = 0; position < stage_.replica.size(); ++position)
    if (position == 0 || !same_sizes(stage_, instr, position - 1, position))
      computation.positions.push_back(ir::local_work(stage_, instr, position));
  add_kind(std::move(computation));
  if (passes_keys) add_keys(instr, true);
  if (const auto sums = ir::statistic_sums(stage_, instr)) {
    ir::StatisticGroups of = ir::statistic_groups(stage_, instr, *sums);
    add_kind(Sums{.element = size_of(of.dtype),
                  .chunk = sums->chunk,
                  .per_token = sums->per_token,
                  .groups = std::move(of.groups),
                  .units = of.units});
  }
}

void SegmentTimer::add_keys(const ir::Instr& instr, bool gradients) {
  PassedKeys keys{.columns = {}, .summed = gradients};
  for (int position = 0; position < stage_.replica.size(); ++position) {
    const ir::KeyBytes bytes = ir::key_bytes(stage_, instr, position);
    keys.columns.push_back((gradients ? bytes.gradients : bytes.values) > 0 ? bytes.columns : 0);
    keys.type = gradients ? bytes.gradient_type : bytes.type;
  }
  if (std::ranges::any_of(keys.columns, [](i64 count) { return count > 0; })) add_kind(std::move(keys));
}

void SegmentTimer::add_kind(Kind kind) {
  const auto known = std::ranges::find_if(kinds_, [&](const Kind& other) { return same(kind, other); });
  pieces_.back().push_back(static_cast<size_t>(known - kinds_.begin()));
  if (known == kinds_.end()) kinds_.push_back(std::move(kind));
}

bool SegmentTimer::same(const Kind& a, const Kind& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<Computation>(&a)) {
    const auto& y = std::get<Computation>(b);
    return x->type == y.type && x->op->name() == y.op->name() && same_list(x->positions, y.positions);
  }
  if (const auto* x = std::get_if<Exchange>(&a)) {
    const auto& y = std::get<Exchange>(b);
    return x->type == y.type && x->by_tokens == y.by_tokens && x->copied == y.copied && x->encoding == y.encoding &&
           same_list(x->messages, y.messages);
  }
  if (const auto* x = std::get_if<PassedKeys>(&a)) return *x == std::get<PassedKeys>(b);
  return std::get<Sums>(a) == std::get<Sums>(b);
}

// Adds the parts of an instruction, in the order in which they start.
void SegmentTimer::add_calls(size_t instr, Known& known, SegmentTimes& times, std::vector<Call>& calls) const {
  const std::vector<size_t>& kinds = pieces_[instr - range_.first];
  const auto passes_keys = [&](size_t kind) { return std::holds_alternative<PassedKeys>(kinds_[kind]); };
  if (known.keys && known.keys->keys.any() && std::ranges::any_of(kinds, passes_keys))
    return add_calls_with_keys(instr, known, times, calls);
  for (const size_t kind : kinds) {
    if (passes_keys(kind)) continue;
    std::optional<Piece>& piece = known.pieces[kind];
    if (!piece) {
      if (const auto* computation = std::get_if<Computation>(&kinds_[kind])) {
        piece = computed(*computation, known.T);
      } else {
        const auto* exchange = std::get_if<Exchange>(&kinds_[kind]);
        piece = transferred(
            exchange ? exchanged(*exchange, known.T) : statistic_sums(std::get<Sums>(kinds_[kind]), known.T), times);
      }
    }
    calls.push_back({*piece, segment_.code[instr].queue});
  }
}

// Calls in the order of runtime::KeyTransfer: each round of keys is passed on while the blocks before it are computed,
// and gradients go back while the blocks behind them are.
void SegmentTimer::add_calls_with_keys(size_t instr, Known& known, SegmentTimes& times,
                                       std::vector<Call>& calls) const {
  const ir::Queue queue = stage_.overlap ? ir::Queue::collective : ir::Queue::compute;
  std::vector<Piece> steps;
  std::optional<size_t> values, gradients;
  for (const size_t kind : pieces_[instr - range_.first]) {
    if (const auto* keys = std::get_if<PassedKeys>(&kinds_[kind])) {
      (keys->summed ? gradients : values) = kind;
      continue;
    }
    std::optional<Piece>& attention = known.pieces[kind];
    if (!attention) attention = computed(std::get<Computation>(kinds_[kind]), known.T);
    steps = blocks(*attention, known);
  }
  size_t rounds = 0, returns = 0;
  for (const batch::KeyExchange& exchange : known.keys->keys.exchanges) {
    rounds = std::max(rounds, exchange.rounds.size());
    returns = std::max(returns, exchange.returns.size());
  }
  if (!gradients) returns = 0;
  const size_t first = calls.size();
  const auto pass_on = [&](size_t kind, size_t round) {
    const auto [it, fresh] = known.transfers.try_emplace({kind, round});
    if (fresh) it->second = transferred(passed_on(std::get<PassedKeys>(kinds_[kind]), *known.keys, round), times);
    calls.push_back({it->second, queue});
    return static_cast<int>(calls.size() - first) - 1;
  };
  int coming = -1, going = -1;
  for (size_t step = 0; step < std::max(steps.size(), returns); ++step) {
    const int here = coming;
    coming = step < rounds ? pass_on(*values, step) : -1;
    if (here >= 0 && coming >= 0) calls.back().after = here;
    if (step < steps.size() && total(steps[step], known.T) > 0)
      calls.push_back({steps[step], ir::Queue::compute, here});
    // Nothing goes back behind step 0, which has the rank's own keys.
    if (step == 0 || step >= returns) continue;
    const int before = going;
    going = pass_on(*gradients, step);
    calls.back().after = before;
  }
}

// Attention's piece by step. Each step goes through its rows of queries again.
std::vector<Piece> SegmentTimer::blocks(const Piece& attention, const Known& known) const {
  const batch::KeyExchange& exchange = known.keys->keys.exchanges[0];
  if (exchange.seen.empty()) return {{}, attention};
  double all_rows = 0;
  std::vector<std::pair<double, double>> steps;  // rows, pairs
  for (const std::vector<batch::QueryBlock>& step : exchange.seen[static_cast<size_t>(known.ring)].blocks) {
    auto& [rows, pairs] = steps.emplace_back();
    for (const batch::QueryBlock& block : step) {
      rows += block.qn;
      pairs += attention_pairs(block);
    }
    all_rows = std::max(all_rows, rows);
  }
  std::vector<Piece> pieces;
  double all = 0;
  for (const auto& [rows, pairs] : steps) {
    pieces.push_back({.fixed = rows == 0 ? 0 : attention.fixed * rows / all_rows + attention.per_pair * pairs});
    all += pieces.back().fixed;
  }
  for (Piece& piece : pieces) piece.share = all > 0 ? piece.fixed / all : 1;
  return pieces;
}

Piece SegmentTimer::transferred(const cost::Exchange& exchange, SegmentTimes& times) {
  times.exchanges.push_back(exchange);
  return {.what = Activity::communication,
          .fixed = exchange.time.count,
          .exchange = static_cast<int>(times.exchanges.size()) - 1};
}

SegmentTimes SegmentTimer::at(i64 T, TimedKeys* keys, int ring) const {
  SegmentTimes times;
  Known known{.T = T, .keys = keys, .ring = ring};
  known.pieces.resize(kinds_.size());
  Calls calls;
  calls.all.reserve(2 * (range_.end - range_.first));
  calls.ends.reserve(range_.end - range_.first);
  for (size_t i = range_.first; i < range_.end; ++i) {
    add_calls(i, known, times, calls.all);
    calls.ends.push_back(calls.all.size());
  }
  const double launch = hardware_.device.host_launch.count;
  if (hardware_.device.host_waits) {
    put_in_order(calls, launch, times);
  } else {
    put_in_order(calls, 0, times);
    if (launch > 0) rest_for_host(calls, static_cast<double>(calls.all.size()) * launch, T, times);
  }
  disturb(times, hardware_.device.lockstep_curve, T);
  return times;
}

// Where the host takes longer than the device, this rests before each call until both take equally long. Collectives
// may end while it rests, so a rest makes the segment longer by its own length at most.
void SegmentTimer::rest_for_host(const Calls& calls, double host, i64 T, SegmentTimes& times) const {
  constexpr double kNear = 1e-9;
  constexpr int kMostRounds = 100;
  const auto count = static_cast<double>(calls.all.size());
  double rest = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    const double lacking = host - duration(times.pieces, T);
    if (lacking <= kNear * host) return;
    put_in_order(calls, rest += lacking / count, times);
  }
}

// Pieces in the order of execution. rest: seconds of the device before each call.
void SegmentTimer::put_in_order(const Calls& calls, double rest, SegmentTimes& times) const {
  times.pieces.clear();
  times.awaits.clear();
  times.releases.clear();
  const auto from = [&](const std::vector<ir::UnitEvent>& events) {
    const auto first = static_cast<int>(range_.first);
    return static_cast<size_t>(std::ranges::lower_bound(events, first, {}, &ir::UnitEvent::instr) - events.begin());
  };
  size_t await = from(segment_.awaits), release = from(segment_.releases);
  int started = 0, needs = 0;                       // pieces of collectives; of those, how many have ended
  std::vector<int> ended(segment_.code.size(), 0);  // how many have when this collective has
  std::vector<int> ends;                            // ends of an instruction's calls
  const auto start = [&](size_t i) {
    for (; await < segment_.awaits.size() && segment_.awaits[await].instr == static_cast<int>(i); ++await)
      times.awaits.push_back({times.pieces.size(), segment_.awaits[await].unit});
    const int before = started;
    ends.clear();
    for (const Call& call : calls.of(i - range_.first)) {
      if (call.after >= 0) needs = std::max(needs, ends[static_cast<size_t>(call.after)]);
      Piece wait{.fixed = rest}, piece = call.piece;
      wait.needs = piece.needs = needs;
      if (rest > 0) append(times, wait);
      piece.queue = call.queue;
      if (piece.what == Activity::compute) std::tie(piece.first, piece.end) = std::pair(i, i + 1);
      started += call.queue == ir::Queue::collective;
      append(times, piece);
      if (hardware_.device.host_waits) needs = started;
      ends.push_back(started);
    }
    ended[i] = started;
    if (segment_.code[i].queue == ir::Queue::compute && started > before) needs = started;
  };
  const auto end = [&](size_t i) {
    if (segment_.code[i].queue == ir::Queue::collective) needs = std::max(needs, ended[i]);
    for (; release < segment_.releases.size() && segment_.releases[release].instr == static_cast<int>(i); ++release)
      times.releases.push_back({times.pieces.size(), segment_.releases[release].unit});
  };
  ir::walk(segment_, piece_, start, end);
}

void Queues::end_first(std::vector<Part>& parts) {
  const auto [exchange, seconds] = collectives_[first_++];
  if (seconds > 0) parts.push_back({seconds, false, exchange});
  if (empty()) {
    collectives_.clear();
    first_ = 0;
  }
  ++ended_;
}

void Queues::add(const Piece& piece, double seconds, std::vector<Part>& parts) {
  while (ended_ < piece.needs) end_first(parts);
  if (piece.queue == ir::Queue::collective) {
    collectives_.emplace_back(piece.exchange, seconds);
    return;
  }
  if (piece.what == Activity::communication) {
    if (seconds > 0) parts.push_back({seconds, false, piece.exchange});
    return;
  }
  while (seconds > 0) {
    if (empty()) {
      parts.push_back({seconds, true, -1});
      return;
    }
    auto& [exchange, left] = collectives_[first_];
    const double both = std::min(seconds, left);
    if (both > 0) parts.push_back({both, true, exchange});
    seconds -= both;
    left -= both;
    if (left <= 0) end_first(parts);
  }
}

void Queues::finish(std::vector<Part>& parts) {
  while (!empty()) end_first(parts);
}

// The piece that a computation takes on its slowest position.
Piece SegmentTimer::computed(const Computation& computation, i64 tokens) const {
  const double T = static_cast<double>(tokens);
  Piece slowest;
  for (const ir::LocalWork& local : computation.positions) {
    Piece piece;
    const cluster::OperatorTable* table = hardware_.device.measured(computation.type, computation.op->measured_as());
    if (table && !(local.by_documents() ? table->attention.empty() : table->calls.empty())) {
      piece = measured(*table, local, tokens);
    } else {
      const ir::Cost& cost = local.cost;
      const double narrowest = std::min(cost.narrowest, T * local.share);
      const cost::Work work{.flops = cost.flops_per_token * T,
                            .narrowest = narrowest,
                            .bytes = cost.bytes_per_token * T + cost.bytes_fixed,
                            .after = cost.bytes_accumulated * local.accumulations(T) + cost.bytes_after_per_token * T};
      const double rate = cost::product_rate(hardware_.device, computation.type, kManyFlops, narrowest).count;
      const double memory =
          cost.bytes_per_square == 0
              ? 0
              : cost.bytes_per_square / cost::memory_rate(hardware_.device, computation.type, kManyBytes).count;
      piece.fixed = cost::call_time(hardware_.device, computation.type, work).count;
      if (cost.flops_per_pair > 0)
        piece.per_pair = cost.flops_per_pair /
                         cost::attention_rate(hardware_.device, computation.type, cost.narrowest, cost.backward).count;
      piece.per_square = cost.flops_per_square / rate + memory;
    }
    if (total(piece, tokens) > total(slowest, tokens)) slowest = piece;
  }
  return slowest;
}

Piece SegmentTimer::measured(const cluster::OperatorTable& table, const ir::LocalWork& local, i64 T) const {
  const double rows = static_cast<double>(T) * local.share;
  if (local.by_documents()) {
    const cluster::MeasuredAttention attention = table.attention_of(local.columns, local.cost.narrowest);
    return {.fixed = attention.per_row * rows, .per_pair = attention.per_pair, .per_square = attention.per_square};
  }
  return {.fixed = table.seconds(rows, local.columns, local.work_per_row())};
}

cost::Exchange SegmentTimer::exchanged(const Exchange& exchange, i64 T) const {
  const i64 tokens = exchange.by_tokens ? ir::token_unit(stage_.replica, T) : 1;
  std::vector<cost::Message> messages = exchange.messages;
  CodingTime coding(hardware_.device);
  for (cost::Message& message : messages) {
    message.bytes *= tokens;
    if (exchange.encoding.codec == codecs::Codec::none || message.from == message.to) continue;
    const i64 elements = message.bytes / size_of(exchange.type);
    coding.add(compiler::codec_of(exchange.encoding, exchange.type, elements, message.from, message.to, placement_),
               exchange.type, elements, message.from, message.to);
    message.bytes =
        compiler::wire_bytes(exchange.encoding, exchange.type, elements, message.from, message.to, placement_);
  }
  const double copied =
      static_cast<double>(exchange.copied * tokens);  // most elements that a rank takes over from itself
  const cluster::OperatorTable* copy = hardware_.device.measured(exchange.type, "copy");
  cost::Exchange own;
  if (copy && copied > 0) own.time.count = copy->seconds(copied, 1, 2.0 * static_cast<double>(size_of(exchange.type)));
  own.time.count += coding.seconds();
  for (const int rank : ranks_) own.devices.push_back({rank, cluster::Link::local, 1});
  return cost::in_turn(own, cost::exchange_over(hardware_, placement_, messages));
}

const cost::Exchange& SegmentTimer::passed_on(const PassedKeys& passed, TimedKeys& keys, size_t round) const {
  const auto [it, fresh] = keys.exchanges.try_emplace({passed.columns, passed.type, passed.summed, round});
  if (fresh)
    it->second = exchange_of(passed, keys.keys, round, compression_.rule(compression_.keys), hardware_, placement_);
  return it->second;
}

// The sums of a chunk of tokens after those of another: each a reduction and a gather.
cost::Exchange SegmentTimer::statistic_sums(const Sums& sums, i64 T) const {
  const i64 local = sums.units * ir::token_unit(stage_.replica, T);
  cost::Exchange all;
  const auto add = [&](i64 tokens, i64 chunks) {
    for (const i64 rows : sums.per_token) {
      std::vector<cost::Message> messages;
      for (const std::vector<int>& group : sums.groups)
        for (const int from : group)
          for (const int to : group)
            messages.push_back({ranks_[static_cast<size_t>(from)], ranks_[static_cast<size_t>(to)],
                                rows * tokens * sums.element / std::ssize(group)});
      all = cost::in_turn(all, cost::exchange_over(hardware_, placement_, messages), 2.0 * static_cast<double>(chunks));
    }
  };
  const i64 chunk = sums.chunk > 0 ? sums.chunk : local;
  if (local >= chunk) add(chunk, local / chunk);
  if (local % chunk > 0) add(local % chunk, 1);
  return all;
}

SegmentTimes segment_times(const ir::StageCode& stage, const ir::Segment& segment, i64 T, const std::vector<int>& ranks,
                           const cluster::Hardware& hardware, const cluster::Cluster& placement) {
  return SegmentTimer(stage, segment, ir::kWhole, ranks, hardware, placement).at(T);
}

}  // namespace switchyard::simulator
