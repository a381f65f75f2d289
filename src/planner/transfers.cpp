#include "planner/transfers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "cost/compute_cost.hpp"

namespace switchyard::planner {
namespace {

constexpr int kNowhere = -2;  // a stage that no rank is on

// Seconds that an operator on the device takes at least to move so many bytes for each of `rows` rows: at the full rate
// of its memory, or the quickest that was measured, between which no interpolation is quicker.
double least_moving(const cluster::Device& device, DType type, const char* name, double rows, double bytes) {
  const cluster::OperatorTable* table = device.measured(type, name);
  if (!table) return rows * bytes / device.rates_of(type).memory.count;
  double rate = 0;
  for (const cluster::MeasuredCall& call : table->calls)
    rate = std::max(rate, call.rows * std::max(1.0, call.work) / call.seconds);
  return rows * bytes / rate;
}

// A placement that stands for all that divide layers otherwise.
Placement any_layers(Placement placement) {
  placement.head_layers = 0;
  placement.chunks = 1;
  placement.path = schedule::Placement::loop;
  return placement;
}

std::vector<int> stage_of_units(const Placement& placement, i64 layers) {
  std::vector<int> stages = {0};
  const std::vector<int> counts = layers_of_positions(placement, layers);
  for (size_t at = 0; at < counts.size(); ++at)
    stages.insert(stages.end(), static_cast<size_t>(counts[at]), placement.stage_of(static_cast<int>(at)));
  stages.push_back(placement.stage_of(placement.positions() - 1));
  return stages;
}

}  // namespace

Transfers::Transfers(const UnitCosts& units)
    : units_(units),
      parts_(units.codes()->one_layer()),
      shared_by_(units.hardware().inter_host ? units.hardware().inter_host->shared_by : 1),
      share_(std::min(1.0, units.hardware().device_share(units.hardware().hosts > 1 ? cluster::Link::inter_host
                                                                                    : cluster::Link::intra_host))) {
  const config::Compression& how = units.compression();
  gradients_ = codings_of(how.gradients, units.precision().state, how, units.hardware());
  gathers_ = codings_of(how.gathers, units.precision().compute, how, units.hardware());
}

std::optional<Post> post_of(const Placement& p, int rank) {
  if (rank >= p.ranks()) return std::nullopt;
  const int wide = p.stage_ranks(), block = rank / wide;
  if (p.inside == config::Inside::data) return Post{block % p.dp, block / p.dp, rank % wide};
  return Post{block / p.pp, block % p.pp, rank % wide};
}

Transfers::UnitSeconds& Transfers::UnitSeconds::operator+=(const UnitSeconds& other) {
  embedding += other.embedding;
  layer += other.layer;
  head += other.head;
  return *this;
}

double Transfers::UnitSeconds::of(StageKind kind, int layers) const {
  const bool whole = kind == StageKind::whole;
  return layers * layer + (whole || kind == StageKind::first ? embedding : 0) +
         (whole || kind == StageKind::last ? head : 0);
}

// Axes that cut weights lie inside those that copy them, of which replicas of the mesh come first, as their cuts do.
Transfers::Seat Transfers::seat_of(const Placement& p, const Post& post, int slices) {
  const int copies = static_cast<int>(p.mesh.copies()), wide = p.stage_ranks() / copies,
            inner = copies / p.mesh.replicas(), copy = post.place / wide;
  Seat seat{.stage = post.stage, .place = post.place % wide};
  if (slices == p.copies())
    seat.slice = (copy / inner * p.dp + post.replica) * inner + copy % inner;
  else if (slices > 1)
    seat.slice = copy / inner;
  return seat;
}

Rectangle Transfers::Seats::part(const Seat& seat, size_t param) const {
  Rectangle part = cuts->of(param)[static_cast<size_t>(seat.place)];
  const double begin = seat.apart + part.rows.begin, length = part.rows.length() / slices;
  part.rows = {begin + seat.slice * length, begin + (seat.slice + 1) * length};
  return part;
}

int Transfers::apart_number(const Placement& p, const Post& post, Apart apart) {
  if (apart == Apart::nothing) return 0;
  if (apart == Apart::pipelines) return post.replica;
  const int copies = static_cast<int>(p.mesh.copies()), inner = copies / p.mesh.replicas();
  return post.replica * inner + post.place / (p.stage_ranks() / copies) % inner;
}

const Transfers::HostSeats::OfStage* Transfers::HostSeats::on(int stage) const {
  const auto found = std::ranges::find(stages, stage, &OfStage::stage);
  return found == stages.end() ? nullptr : &*found;
}

const Transfers::HostSeats& Transfers::host_seats(std::vector<Seat> seats, int slices) const {
  constexpr std::uint64_t kMost = 1 << 21;  // ranks
  const auto code = [](const Seat& seat) {
    const auto number = [](int of) { return static_cast<std::uint64_t>(of); };
    return 1 + (number(seat.place) * kMost + number(seat.slice)) * kMost + number(seat.apart);
  };
  SeatsKey key = {static_cast<std::uint64_t>(slices)};
  for (const Seat& seat : seats) {
    key.push_back(static_cast<std::uint64_t>(seat.stage + 1));
    key.push_back(code(seat));
  }
  const auto [it, fresh] = host_seats_.try_emplace(std::move(key));
  HostSeats& host = it->second;
  if (!fresh) return host;
  host.number = host_seats_.size();
  host.seats = std::move(seats);
  for (const Seat& one : host.seats) {
    if (one.stage < 0 || host.on(one.stage)) continue;
    HostSeats::OfStage of_stage{.stage = one.stage};
    SeatsKey on_stage = {static_cast<std::uint64_t>(slices)};
    for (size_t rank = 0; rank < host.seats.size(); ++rank) {
      const bool here = host.seats[rank].stage == one.stage;
      on_stage.push_back(here ? code(host.seats[rank]) : 0);
      if (here) of_stage.adapters |= std::uint64_t{1} << std::min<size_t>(rank / static_cast<size_t>(shared_by_), 63);
    }
    of_stage.number = numbers_.try_emplace(std::move(on_stage), static_cast<int>(numbers_.size()) + 1).first->second;
    host.stages.push_back(of_stage);
  }
  return host;
}

const Transfers::Seats& Transfers::seats(const Placement& placement, int cuts, Apart apart) const {
  const auto [it, fresh] = seats_.try_emplace(std::tuple_cat(placement_key(placement), std::tuple(cuts, apart)));
  Seats& seats = it->second;
  if (!fresh) return seats;
  seats.stage_of_unit = stage_of_units(placement, units_.model().layers);
  seats.cuts = &parts_.cuts(placement.mesh);
  seats.slices = cuts;
  seats.hosts_of_stage.resize(static_cast<size_t>(placement.pp));
  seats.adapters_of_stage.resize(static_cast<size_t>(placement.pp));
  const int ranks = units_.hardware().ranks(), devices = units_.hardware().devices_per_host;
  for (int begin = 0; begin < ranks; begin += devices) {
    std::vector<Seat> of_host(static_cast<size_t>(devices));
    int least = std::numeric_limits<int>::max();
    for (int rank = begin; rank < std::min(placement.ranks(), begin + devices); ++rank) {
      const Post post = post_of(placement, rank).value();
      Seat& seat = of_host[static_cast<size_t>(rank - begin)] = seat_of(placement, post, cuts);
      seat.apart = apart_number(placement, post, apart);
      least = std::min(least, seat.slice);
    }
    if (begin == 0) seats.first = of_host.front();
    const HostSeats& host = host_seats(of_host, cuts);
    for (const HostSeats::OfStage& of_stage : host.stages) {
      seats.hosts_of_stage[static_cast<size_t>(of_stage.stage)].push_back(static_cast<int>(seats.hosts.size()));
      seats.adapters_of_stage[static_cast<size_t>(of_stage.stage)] += std::popcount(of_stage.adapters);
    }
    seats.hosts.push_back(&host);
    if (cuts > 1)
      for (Seat& seat : of_host) seat.slice -= seat.stage >= 0 ? least : 0;
    seats.from_first.push_back(cuts > 1 ? &host_seats(std::move(of_host), cuts) : &host);
  }
  return seats;
}

std::vector<Transfers::UnitClass> Transfers::classes(std::span<const Seats* const> tables) const {
  const i64 layers = units_.model().layers;
  const UnitCosts::Units whole = units_.units({});
  std::vector<UnitClass> classes;
  for (i64 unit = 0; unit < layers + 2; ++unit) {
    const size_t kind = unit == 0 ? 0 : unit <= layers ? 1 : 2;
    UnitClass one{.kind = kind, .elements = std::array{whole.embedding, whole.layer, whole.head}[kind]};
    for (size_t t = 0; t < tables.size(); ++t) one.stage[t] = tables[t]->stage_of_unit[static_cast<size_t>(unit)];
    if (classes.empty() || classes.back().stage != one.stage || classes.back().kind != one.kind) classes.push_back(one);
    ++classes.back().units;
  }
  return classes;
}

double Transfers::inside(double bytes, const Codings& codings) const {
  if (bytes < 1) return 0;
  const cluster::LinkClass& link = units_.hardware().intra_host;
  const auto seconds = [&](double sent) {
    return link.latency.count + sent / (link.bandwidth.count * link.curve.at(sent));
  };
  if (!codings.inside) return seconds(bytes);
  return std::min(seconds(bytes), seconds(bytes * codings.inside->size) + bytes * codings.inside->seconds);
}

// Seconds of bytes over an adapter, in so many messages, one of each of its devices at least. Short ones reach a
// smaller share of the bandwidth, and each has its latency.
double Transfers::across(double bytes, double messages, const Codings& codings) const {
  if (bytes < 1) return 0;
  const cluster::LinkClass& link = units_.hardware().link(cluster::Link::inter_host);
  messages = std::max<double>(shared_by_, messages);
  const auto seconds = [&](double sent) {
    return messages / shared_by_ * link.latency.count + sent / (link.bandwidth.count * link.curve.at(sent / messages));
  };
  if (!codings.across) return seconds(bytes);
  const Coding& coding = *codings.across;
  return std::min(seconds(bytes), seconds(bytes * coding.size) + bytes / shared_by_ * coding.seconds);
}

const ParamGroups& Transfers::groups_of(std::span<const Seats* const> tables) const {
  std::array<const WeightParts::Cuts*, kTables> cuts{};
  for (size_t t = 0; t < tables.size(); ++t) cuts[t] = tables[t]->cuts;
  return parts_.groups(std::span(cuts).first(tables.size()));
}

// Where parts are nested and only home cuts them into slices, all of a part's slices lie equally to what others hold.
std::vector<Transfers::Hosts> Transfers::hosts_of(std::span<const Seats* const> tables) const {
  bool one_pattern = groups_of(tables).nested;
  for (size_t t = 0; t < tables.size(); ++t) one_pattern = one_pattern && (t == 1 || tables[t]->slices == 1);
  const size_t number_of_hosts = tables[0]->hosts.size();
  std::vector<Hosts> hosts;
  std::vector<int> place(std::bit_ceil(2 * number_of_hosts), -1);  // in `hosts`, by hash
  for (size_t number = 0; number < number_of_hosts; ++number) {
    Hosts one{.count = 1};
    MixedHash hash;
    for (size_t t = 0; t < tables.size(); ++t) {
      one.seats[t] = (one_pattern && t == 1 ? tables[t]->from_first : tables[t]->hosts)[number];
      hash.add(one.seats[t]->number);
    }
    size_t slot = hash.get() % place.size();
    while (place[slot] >= 0 && hosts[static_cast<size_t>(place[slot])].seats != one.seats)
      slot = (slot + 1) % place.size();
    if (place[slot] >= 0) {
      ++hosts[static_cast<size_t>(place[slot])].count;
    } else {
      place[slot] = static_cast<int>(hosts.size());
      hosts.push_back(one);
    }
  }
  return hosts;
}

const Transfers::Lacks& Transfers::lacks_of(std::span<const Seats* const> tables, const ParamGroups& groups,
                                            const Stages& stages, const Hosts& host) const {
  std::array<int, kTables> numbers{};
  for (size_t t = 0; t < tables.size(); ++t)
    if (const HostSeats::OfStage* on_stage = host.seats[t]->on(stages[t])) numbers[t] = on_stage->number;
  const auto [it, fresh] = lacks_.try_emplace({&groups, numbers[0], numbers[1], numbers[2]});
  if (fresh) it->second = new_lacks(tables, groups, stages, host);
  return it->second;
}

Transfers::Lacks Transfers::new_lacks(std::span<const Seats* const> tables, const ParamGroups& groups,
                                      const Stages& stages, const Hosts& host) const {
  const size_t ranks = host.seats[0]->seats.size();
  const auto seat_on_stage = [&](size_t t, size_t rank) {
    const Seat& seat = host.seats[t]->seats[rank];
    return seat.stage == stages[t] ? &seat : nullptr;
  };
  Lacks lacks;
  int holders = 0, users = 0, last_adapter = -1;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t t = 1; t < tables.size(); ++t)
      if (seat_on_stage(t, rank)) {
        ++holders;
        break;
      }
    if (!seat_on_stage(0, rank)) continue;
    ++users;
    if (const int adapter = static_cast<int>(rank) / shared_by_; std::exchange(last_adapter, adapter) != adapter)
      ++lacks.adapters;
  }
  if (users == 0) return lacks;
  // Shares of the parameters of each group: of the host; of its users, one after the other.
  std::vector<double> of_host, of_users;
  for (const ParamGroup& group : groups.list) {
    for (std::vector<Rectangle>& parts : parts_of_host_) parts.clear();
    for (size_t rank = 0; rank < ranks; ++rank) {
      std::array<std::optional<Rectangle>, kTables> own;
      for (size_t t = 0; t < tables.size(); ++t) {
        const Seat* seat = seat_on_stage(t, rank);
        if (!seat) continue;
        own[t] = tables[t]->part(*seat, group.param);
        if (std::ranges::count(parts_of_host_[t], *own[t]) == 0) parts_of_host_[t].push_back(*own[t]);
      }
      const auto list = [](const std::optional<Rectangle>& one) {
        return one ? std::span(&*one, 1) : std::span<const Rectangle>();
      };
      if (own[0]) of_users.push_back(area_outside(*own[0], list(own[1]), list(own[2])));
    }
    const auto& [needed, home, copies] = parts_of_host_;
    double missing = 0;
    for (const Rectangle& one : needed) missing += area_outside(one, home, copies);
    of_host.push_back(missing);
  }
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    const auto sum_of = [&](const auto& share) {
      double elements = 0;
      for (size_t g = 0; g < groups.list.size(); ++g) elements += groups.list[g].elements[kind] * share(g);
      return elements;
    };
    Lack& lack = lacks.of_kind[kind];
    lack.of_host = sum_of([&](size_t g) { return of_host[g]; });
    double sum = 0, most = 0;  // what the users lack
    for (size_t user = 0; std::cmp_less(user, users); ++user) {
      const double missing = sum_of([&](size_t g) { return of_users[g * static_cast<size_t>(users) + user]; });
      sum += missing;
      most = std::max(most, missing);
    }
    lack.of_adapter = lack.of_host / lacks.adapters;
    lack.inside = most - lack.of_host / users;
    if (holders > 0) lack.inside = std::max(lack.inside, (sum - users * lack.of_host) / holders);
  }
  return lacks;
}

int Transfers::senders(std::span<const Seats* const> tables, const Stages& stages) const {
  const auto home = static_cast<size_t>(stages[1]);
  if (tables.size() == 2) return tables[1]->adapters_of_stage[home];
  int senders = tables[2]->adapters_of_stage[static_cast<size_t>(stages[2])];
  for (const int host : tables[1]->hosts_of_stage[home]) {
    const HostSeats::OfStage* previous = tables[2]->hosts[static_cast<size_t>(host)]->on(stages[2]);
    const std::uint64_t of_home = tables[1]->hosts[static_cast<size_t>(host)]->on(stages[1])->adapters;
    senders += std::popcount(previous ? of_home & ~previous->adapters : of_home);
  }
  return senders;
}

// Seconds of a unit of each class, on the host on which it takes longest.
std::vector<double> Transfers::unit_times(std::span<const Seats* const> tables, const std::vector<UnitClass>& classes,
                                          const std::vector<Hosts>& hosts, i64 element, const Codings& codings) const {
  struct Sums {
    double crossing = 0, of_adapter = 0, inside = 0;  // elements; crossing: of all hosts; the others: most of a host
  };
  const ParamGroups& groups = groups_of(tables);
  std::vector<std::vector<size_t>> of_stage(tables[0]->hosts_of_stage.size());  // classes, by the users' stage
  for (size_t c = 0; c < classes.size(); ++c) of_stage[static_cast<size_t>(classes[c].stage[0])].push_back(c);
  std::vector<Sums> sums(classes.size());
  for (const Hosts& host : hosts)
    for (const HostSeats::OfStage& users : host.seats[0]->stages)
      for (const size_t c : of_stage[static_cast<size_t>(users.stage)]) {
        const Lack& lack = lacks_of(tables, groups, classes[c].stage, host).of_kind[classes[c].kind];
        sums[c].crossing += host.count * lack.of_host;
        sums[c].of_adapter = std::max(sums[c].of_adapter, lack.of_adapter);
        sums[c].inside = std::max(sums[c].inside, lack.inside);
      }
  // Each slice of a holder is a message.
  std::array<double, kUnitKinds> slice{};
  for (const ParamGroup& group : groups.list)
    for (size_t kind = 0; kind < kUnitKinds; ++kind)
      slice[kind] += group.elements[kind] * tables[1]->part(tables[1]->first, group.param).area();
  std::vector<double> times;
  for (size_t c = 0; c < classes.size(); ++c) {
    const auto bytes = [&](double elements) { return elements * static_cast<double>(element); };
    const int senders = this->senders(tables, classes[c].stage);
    const double of_adapter = std::max(sums[c].of_adapter, sums[c].crossing / std::max(1, senders));
    times.push_back(across(bytes(of_adapter), of_adapter / slice[classes[c].kind], codings) +
                    inside(bytes(sums[c].inside), codings));
  }
  return times;
}

// Every rank that sends or receives a part of a unit is busy until the unit's transfer is complete. Ranks process units
// in order, so a rank that waits for another one delays a third.
double Transfers::last_unit(std::span<const Seats* const> tables, i64 element, const Codings& codings) const {
  const std::vector<UnitClass> classes = this->classes(tables);
  const std::vector<Hosts> hosts = hosts_of(tables);
  const std::vector<double> times = unit_times(tables, classes, hosts, element, codings);
  struct Ranks {
    std::array<int, kTables> stage = {-1, -1, -1};
    double free = 0;  // time at which they have finished the previous units
  };
  std::vector<Ranks> ranks;  // ranks with equal stages are one entry
  for (const Hosts& host : hosts)
    for (size_t rank = 0; rank < host.seats[0]->seats.size(); ++rank) {
      Ranks one;
      for (size_t t = 0; t < tables.size(); ++t) one.stage[t] = host.seats[t]->seats[rank].stage;
      if (ranks.empty() || ranks.back().stage != one.stage) ranks.push_back(one);
    }
  std::ranges::sort(ranks, {}, &Ranks::stage);
  const auto equal = [](const Ranks& a, const Ranks& b) { return a.stage == b.stage; };
  ranks.erase(std::unique(ranks.begin(), ranks.end(), equal), ranks.end());
  double last = 0;
  std::vector<Ranks*> taking_part;
  for (size_t c = 0; c < classes.size(); ++c) {
    if (times[c] == 0) continue;
    taking_part.clear();
    double free = 0;
    for (Ranks& rank : ranks) {
      bool any = false;
      for (size_t t = 0; t < tables.size(); ++t) any = any || rank.stage[t] == classes[c].stage[t];
      if (!any) continue;
      taking_part.push_back(&rank);
      free = std::max(free, rank.free);
    }
    free += static_cast<double>(classes[c].units) * times[c];
    for (Ranks* rank : taking_part) rank->free = free;
    last = std::max(last, free);
  }
  return last;
}

double Transfers::transfer(const std::optional<Placement>& previous, const Placement& next, const Home& home,
                           What what) const {
  const auto [it, fresh] =
      known_.try_emplace(std::tuple_cat(previous ? placement_key(*previous) : PlacementKey(), placement_key(next),
                                        placement_key(home.placement), std::tuple(what, home.copies())),
                         0.0);
  if (!fresh) return it->second;
  const int least = what == What::parameters ? 3 : 2;  // stage of ZeRO that cuts them
  std::vector<const Seats*> tables = {&seats(next, next.cuts(least)), &seats(home.placement, home.shares())};
  if (previous) tables.push_back(&seats(*previous, previous->cuts(least)));
  const Precision precision = units_.precision();
  return it->second = last_unit(tables, size_of(what == What::parameters ? precision.compute : precision.state),
                                what == What::gradients ? gradients_ : Codings{});
}

double Transfers::moves(const std::optional<Placement>& previous, const Placement& next, const Home& home) const {
  return previous == next ? 0 : transfer(previous, next, home, What::parameters);
}

// Gradients that a rank computed and that are not at home there travel the links on which its parameters arrive, in the
// opposite direction.
double Transfers::reduce(const Placement& from, const Home& home) const {
  return transfer(std::nullopt, from, {home.placement, 1}, What::gradients);
}

// Each sum has one rank at home, so all hosts together lack no less than what they have gradients of, less one copy.
// The fewest messages are the quickest. Ranks that have a stage are busy with all its units, those of the slowest stage
// with the mean at least.
double Transfers::least_reduce(const Placement& from) const {
  const Placement any = any_layers(from);
  const auto [it, fresh] = least_reduce_.try_emplace(placement_key(any), 0.0);
  if (!fresh || !units_.shares_rise()) return it->second;
  const Seats& own = seats(any, any.cuts(2));
  const std::array<const Seats*, 2> tables = {&own, &own};
  const ParamGroups& groups = groups_of(tables);
  const std::vector<Hosts> hosts = hosts_of(tables);
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    double elements = 0, least = std::numeric_limits<double>::infinity();
    for (const ParamGroup& group : groups.list) elements += group.elements[kind];
    for (int stage = 0; stage < any.pp; ++stage) {
      double lacks = -elements;
      int adapters = 0;
      for (const Hosts& host : hosts) {
        const Lacks& of_host = lacks_of(tables, groups, {stage, kNowhere, kNowhere}, host);
        lacks += host.count * of_host.of_kind[kind].of_host;
        adapters += host.count * of_host.adapters;
      }
      const double bytes = std::max(0.0, lacks) / adapters * static_cast<double>(size_of(units_.precision().state));
      least = std::min(least, across(bytes, shared_by_, gradients_));
    }
    it->second += (kind == 1 ? static_cast<double>(units_.model().layers) : 1) * least / any.pp;
  }
  return it->second;
}

double Transfers::beyond_phase(const Placement& p, bool at_home) const {
  const double reduced = at_home ? reduce(p, {p, 1}) : least_reduce(p);
  double beyond = zeroing(p) + least_of_transfer(share_, reduced);
  if (at_home) {
    double end = finish({p, 1});
    if (const Home copied{p, 0}; copied.copies()) end = std::min(end, finish(copied));
    beyond += std::max(0.0, end - least_finish());
  }
  return beyond;
}

// A stage has its first unit when its share of the moves has come. What runs gather and reduce for themselves is in the
// work, and little is left to reduce then.
PhaseTimes Transfers::phase(const Placement& next, double moves, double work, double reduce,
                            double last_backward) const {
  const double units = static_cast<double>(units_.model().layers + 2) / next.pp;
  return {.moves = moves,
          .first_unit = moves / units,
          .work = work + zeroing(next),
          .reduce = reduce,
          .last_unit = reduce / units,
          .last_backward = next.runs_transfer() ? 0 : last_backward,
          .share = share_};
}

double Transfers::zeroing(const Placement& p) const {
  if (p.runs_transfer()) return 0;
  const auto [it, fresh] = zeroing_.try_emplace(placement_key(p), 0.0);
  if (!fresh) return it->second;
  const DType state = units_.precision().state;
  const UnitSeconds zero = on_device(p, 1, "zero", state, size_of(state));
  return it->second = zero.of(StageKind::whole, static_cast<int>(units_.model().layers)) / p.pp;
}

double Transfers::beyond_one_phase(const Placement& placement, double last_backward) const {
  double least = std::numeric_limits<double>::infinity();
  for (const int zero : {0, 1}) {
    const Home home{placement, zero};
    if (zero == 0 && !home.copies()) continue;
    const PhaseTimes one = phase(std::nullopt, placement, home, 0, last_backward);  // work: filling with zeros
    const double beside = one.moves - one.first_unit + std::min(one.reduce, one.last_backward);
    least = std::min(least, one.first_unit + one.work + one.share * beside +
                                std::max(one.reduce - one.last_backward, one.last_unit) + finish(home));
  }
  return std::max(0.0, least - least_finish());
}

// All ranks of a stage get what each has its share of. Gradients travel in the opposite direction.
Transfers::UnitSeconds Transfers::of_units(const Placement& placement, int cuts, Apart apart, DType type,
                                           const Codings& codings) const {
  if (cuts == placement.copies()) apart = Apart::nothing;
  const std::array<const Seats*, 2> tables = {&seats(placement, 1, apart), &seats(placement, cuts, apart)};
  const std::vector<UnitClass> classes = this->classes(tables);
  const std::vector<double> times = unit_times(tables, classes, hosts_of(tables), size_of(type), codings);
  UnitSeconds seconds{.embedding = times.front(), .layer = 0, .head = times.back()};
  for (size_t c = 1; c + 1 < classes.size(); ++c) seconds.layer = std::max(seconds.layer, times[c]);
  return seconds;
}

// Seconds of an operator on the rows that a rank has, as simulator::TaskWork counts them.
Transfers::UnitSeconds Transfers::on_device(const Placement& p, int cuts, const char* name, DType type,
                                            i64 bytes) const {
  const UnitCosts::Units used = units_.units(p.code_mesh());
  const auto seconds = [&](i64 elements) {
    return cost::moving_time(units_.hardware().device, type, name, static_cast<double>(elements) / cuts,
                             static_cast<double>(bytes))
        .count;
  };
  return {seconds(used.embedding), seconds(used.layer), seconds(used.head)};
}

const Transfers::OfRun& Transfers::of_run(const Placement& p) const {
  const auto [it, fresh] = of_run_.try_emplace(placement_key(p));
  OfRun& run = it->second;
  if (!fresh || !p.runs_transfer()) return run;
  const cluster::Hardware& hardware = units_.hardware();
  const DType state = units_.precision().state, compute = units_.precision().compute;
  run.reduce = of_units(p, p.cuts(2), Apart::copies, state, gradients_);
  run.reduce += on_device(p, p.cuts(2), "add", state, 3 * size_of(state));
  run.zero = on_device(p, 1, "zero", state, size_of(state));
  if (p.cuts(3) > 1) {
    run.gather = of_units(p, p.cuts(3), Apart::pipelines, compute, gathers_);
    run.gather += on_device(p, p.cuts(3), "copy", compute, 2 * size_of(compute));
  }
  const bool crosses = (p.zero > 1 ? first_rank(p, p.dp - 1, 0) : 0) + p.stage_ranks() > hardware.devices_per_host;
  run.device_share = hardware.device_share(crosses ? cluster::Link::inter_host : cluster::Link::intra_host);
  return run;
}

Transfers::OfRun Transfers::least_of_run(Placement p) const {
  OfRun least = of_run(p);
  const auto lower = [](UnitSeconds& to, const UnitSeconds& from) {
    to = {std::min(to.embedding, from.embedding), std::min(to.layer, from.layer), std::min(to.head, from.head)};
  };
  while (p.mesh.replicas() > 1 && p.zero < 3) {
    ++p.zero;
    const OfRun& other = of_run(p);
    lower(least.gather, other.gather);
    lower(least.reduce, other.reduce);
    least.device_share = std::min(least.device_share, other.device_share);
  }
  return least;
}

double Transfers::updated_bytes() const {
  const Precision precision = units_.precision();
  return static_cast<double>(8 * size_of(precision.state) +
                             (precision.compute == precision.state ? 0 : size_of(precision.compute)));
}

// Latencies of summing the norm by recursive halving of the ranks.
double Transfers::norm_seconds() const {
  const cluster::Hardware& hardware = units_.hardware();
  int halvings = 0;
  while ((1 << halvings) < hardware.ranks()) ++halvings;
  return 2 * halvings *
         (hardware.hosts > 1 ? hardware.link(cluster::Link::inter_host) : hardware.intra_host).latency.count;
}

// The slowest stage has at least the mean.
double Transfers::least_finish() const {
  const cluster::Device& device = units_.hardware().device;
  const DType type = units_.precision().state;
  const UnitCosts::Units whole = units_.units({});
  const double rows = static_cast<double>(whole.embedding + units_.model().layers * whole.layer + whole.head) /
                      units_.hardware().ranks();
  return least_moving(device, type, "adamw", rows, updated_bytes()) +
         least_moving(device, type, "sum_of_squares", rows, static_cast<double>(size_of(type))) + norm_seconds();
}

// Seconds computed as in the simulator: gradients are read for the norm, where each has its sum; then memory traffic of
// master weights, moments, gradient and compute copy.
double Transfers::finish(const Home& at) const {
  const auto [it, fresh] = finish_.try_emplace(at);
  if (!fresh) return it->second;
  const Placement& home = at.placement;
  const cluster::Device& device = units_.hardware().device;
  const DType type = units_.precision().state;
  const auto moving = [&](const char* name, double rows, double bytes) {
    return cost::moving_time(device, type, name, rows, bytes).count;
  };
  std::vector<double> updates(static_cast<size_t>(home.pp), 0), sums = updates;  // by stage: seconds; gradients
  const std::array<const Seats*, 1> tables = {&seats(home, 1)};
  for (const UnitClass& c : classes(tables)) {
    const double of_rank = static_cast<double>(c.elements * home.mesh.copies()) / home.stage_ranks();
    const auto stage = static_cast<size_t>(c.stage[0]);
    updates[stage] += static_cast<double>(c.units) * moving("adamw", of_rank / at.shares(), updated_bytes());
    sums[stage] += static_cast<double>(c.units) * of_rank / home.copies();
  }
  const double spread = at.copies() ? transfer(std::nullopt, home, {home, 1}, What::sums) : 0;
  return it->second = spread + std::ranges::max(updates) + norm_seconds() +
                      moving("sum_of_squares", std::ranges::max(sums), static_cast<double>(size_of(type)));
}

}  // namespace switchyard::planner
