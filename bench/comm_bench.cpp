// All-reduce on the thread fabric against the memory-copy bound, 4 KiB to 64 MiB. Usage: comm_bench [ranks [repetitions]]
#include <fmt/core.h>

#include <cstdlib>
#include <exception>

#include "comm/measure.hpp"

int main(int argc, char** argv) try {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2, repetitions = argc > 2 ? std::atoi(argv[2]) : 15;
  const switchyard::i64 sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  fmt::print("{}", switchyard::comm::table(switchyard::comm::measure_all_reduce(sizes, ranks, repetitions)));
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
