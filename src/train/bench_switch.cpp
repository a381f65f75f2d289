#include "train/bench_switch.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/median.hpp"
#include "comm/collectives.hpp"
#include "runtime/device_order.hpp"
#include "runtime/executor.hpp"
#include "runtime/tensors.hpp"
#include "train/bench_rank.hpp"
#include "train/channels.hpp"
#include "train/host_share.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {
namespace {

constexpr int kFrom = 0, kTo = 1;  // the plans' strategies

// Phases without documents: their program only switches.
struct Phases {
  Phases(const compiler::Plans& plans, const std::vector<int>& strategies) {
    for (const int strategy : strategies) {
      batch::PhasePlan& phase = plan.phases.emplace_back();
      phase.strategy = strategy;
      phase.replica.resize(plans.strategies()[static_cast<size_t>(strategy)].replicas.size());
    }
    compiler::AssembleOptions options;
    options.train = false;
    program = compiler::assemble(plan, plans, options);
  }
  batch::StepPlan plan;
  ir::Program program;
};

// Bytes of working parameters that a switch allocates on a rank.
i64 working_bytes(const compiler::Plans& plans, const compiler::Holdings& holdings) {
  i64 elements = 0;
  for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit)
    elements += holdings.working_elements(kTo, kFrom, unit);
  return elements * size_of(plans.graph().precision().compute);
}

// One rank of the measurement.
class BenchOnRank {
 public:
  BenchOnRank(const BenchSwitchSettings& s, comm::Fabric& fabric)
      : fabric_(fabric),
        device_(with_host_share({}, fabric, s.device, true).device),
        plans_(bench_plans(s.model, s.precision, {s.from, s.to}, fabric.cluster(), s.device)),
        store_(plans_, fabric.rank(), device_),
        executor_(plans_, store_, fabric, {.device = device_, .memory = &memory_}),
        everyone_(comm::everyone(fabric, kSwitchBenchChannel)) {
    store_.home.initialize([](int, const layout::Box&, at::Tensor values) { values.fill_(1); });
  }

  BenchSwitchResult run(int repetitions) {
    const Phases staying(plans_, {kFrom, kFrom}), changing(plans_, {kFrom, kTo, kTo});
    const i64 bytes = working_bytes(plans_, store_.holdings), total = sum(bytes);
    if (total == 0) user_error("bench switch: this switch moves and copies nothing. Give two strategies that differ.");
    const at::Tensor source = runtime::zeros({bytes / 4}, DType::i32, device_),
                     target = runtime::zeros({bytes / 4}, DType::i32, device_);
    const i64 staying_sent = sent_by(staying), moved = sent_by(changing) - staying_sent;  // also warms up
    std::vector<double> switches, copies;
    for (int i = 0; i < repetitions; ++i) {
      const double stay = seconds_of([&] { execute(staying); });
      switches.push_back(seconds_of([&] { execute(changing); }) - stay);
      copies.push_back(seconds_of([&] { copy(source, target); }));
    }
    return {.moved_bytes = moved,
            .copied_bytes = total - moved,
            .switch_seconds = median(switches),
            .copy_seconds = median(copies)};
  }

 private:
  void execute(const Phases& phases) { executor_.run(phases.program, {&phases.plan, &no_documents_, {}}); }

  // libtorch's copy of CPU memory would use all of the process's threads.
  void copy(const at::Tensor& source, const at::Tensor& target) const {
    if (device_.is_cpu())
      std::memcpy(target.data_ptr(), source.const_data_ptr(), target.nbytes());
    else
      target.copy_(source);
  }

  template <class T>
  std::vector<T> everyones(T mine) {
    return comm::all_gather_values(fabric_, everyone_, "bench switch", ++exchanges_, mine);
  }
  i64 sum(i64 mine) {
    const std::vector<i64> all = everyones(mine);
    return std::accumulate(all.begin(), all.end(), i64{0});
  }
  i64 sent_by(const Phases& phases) {
    const comm::Traffic before = fabric_.traffic();
    execute(phases);
    const comm::Traffic after = fabric_.traffic();
    return sum(std::accumulate(after.begin(), after.end(), i64{0}) -
               std::accumulate(before.begin(), before.end(), i64{0}));
  }

  // Seconds from a common start to the end of the slowest rank.
  template <class Work>
  double seconds_of(const Work& work) {
    everyones(0);
    const auto start = Clock::now();
    work();
    runtime::wait_for_device(device_);
    return std::ranges::max(everyones(seconds_since(start)));
  }

  comm::Fabric& fabric_;
  at::Device device_;
  kernels::RankMemory memory_{kernels::machine_memory()};
  kernels::MemoryScope scope_{&memory_};
  compiler::Plans plans_;
  runtime::Store store_;
  runtime::Executor executor_;
  runtime::Documents no_documents_;
  comm::Channel everyone_;
  i64 exchanges_ = 0;
};

}  // namespace

BenchSwitchResult bench_switch(const BenchSwitchSettings& settings) {
  config::validate(settings.model);
  if (settings.ranks < 1 || settings.repetitions < 1)
    user_error("bench switch: --ranks and --repetitions must be 1 or more.");
  check_threads(settings.ranks, 0);
  require_device(settings.device);
  kernels::install_rank_allocator();
  BenchSwitchResult result;
  on_ranks(settings.ranks, {}, cluster::uniform(1, settings.ranks), {}, [&](comm::Fabric& fabric) {
    const BenchSwitchResult mine = BenchOnRank(settings, fabric).run(settings.repetitions);
    if (fabric.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace switchyard::train
