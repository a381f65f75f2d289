#include "comm/measure.hpp"

#include <barrier>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/median.hpp"
#include "comm/collectives.hpp"
#include "comm/thread_fabric.hpp"

namespace switchyard::comm {
namespace {

// Times `work` between two barriers of all threads.
template <class Work>
double timed(std::barrier<>& barrier, const Work& work) {
  barrier.arrive_and_wait();
  const auto start = Clock::now();
  work();
  barrier.arrive_and_wait();
  return seconds_since(start);
}

CommFigure measure_size(i64 bytes, int ranks, int repetitions) {
  const auto fabrics = thread_fabrics(ranks, cluster::uniform(1, ranks));
  Channel channel{0, {}};
  for (int r = 0; r < ranks; ++r) channel.ranks.push_back(r);
  const i64 volume = all_reduce_volume(bytes, ranks);
  std::barrier<> barrier(ranks);
  std::vector<double> reduce, copy;
  const auto body = [&](int rank) {
    std::vector<float> data(static_cast<size_t>(bytes / 4), 1.0f);
    std::vector<std::byte> from(static_cast<size_t>(volume), std::byte{1}),
        to(static_cast<size_t>(volume), std::byte{2});
    for (int i = -1; i < repetitions; ++i) {  // the first round warms up
      const double reduced = timed(barrier, [&] {
        all_reduce(*fabrics[static_cast<size_t>(rank)], channel, "measure", i + 1, data.data(), bytes / 4, DType::f32);
      });
      const double copied = timed(barrier, [&] { std::memcpy(to.data(), from.data(), to.size()); });
      if (rank == 0 && i >= 0) reduce.push_back(reduced), copy.push_back(copied);
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  threads.clear();
  return {.ranks = ranks, .bytes = bytes, .all_reduce_seconds = median(reduce), .copy_seconds = median(copy)};
}

}  // namespace

double CommFigure::bytes_per_second() const {
  return static_cast<double>(all_reduce_volume(bytes, ranks)) / all_reduce_seconds;
}

i64 all_reduce_volume(i64 bytes, int ranks) { return 2 * bytes * (ranks - 1) / ranks; }

std::vector<CommFigure> measure_all_reduce(std::span<const i64> sizes, int ranks, int repetitions) {
  check(ranks >= 2 && repetitions >= 1, "all-reduce of {} ranks, {} repetitions", ranks, repetitions);
  std::vector<CommFigure> figures;
  for (const i64 bytes : sizes) {
    check(bytes > 0 && bytes % 4 == 0, "all-reduce of {} bytes, which are not whole fp32 elements", bytes);
    figures.push_back(measure_size(bytes, ranks, repetitions));
  }
  return figures;
}

std::string table(std::span<const CommFigure> figures) {
  std::string text = "ranks          bytes   all-reduce    MB/s a rank  memory copy  share of bound\n";
  for (const CommFigure& f : figures)
    text += fmt::format("{:>5} {:>14} {:>9.3f} ms {:>14.0f} {:>9.3f} ms {:>14.0f}%\n", f.ranks, f.bytes,
                        f.all_reduce_seconds * 1e3, f.bytes_per_second() / 1e6, f.copy_seconds * 1e3, f.share() * 100);
  return text;
}

}  // namespace switchyard::comm
