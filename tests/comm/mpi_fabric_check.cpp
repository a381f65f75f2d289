// Checks of the MPI fabric, started as `mpirun -n N mpi_fabric_check SCENARIO`. Prints "PASS scenario" on rank 0, or
// "FAIL" with the reason on the rank that saw it. Scenarios that abort end without MPI_Finalize, as a failing job does.
#include <unistd.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <map>

#include "comm/mpi_fabric.hpp"
#include "fabric_suite.hpp"
#include "ops.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using suite::expect;

Channel all(const Fabric& fabric) { return {0, suite::all_ranks(fabric)}; }

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ClusterError& error) {
    return error.what();
  }
  return "no error";
}

void expect_text(const std::string& text, const std::string& part) {
  expect(text.find(part) != std::string::npos, "\"" + part + "\" in \"" + text + "\"");
}

// ---- scenarios that end well ----

void equal_bits(Fabric& fabric) {
  suite::concurrent_channels(fabric, 25, 7, 0);
  suite::collectives(fabric, 9, 11, 1000);
  suite::encoded_messages(fabric, 10, 2000);
}

void large_messages(Fabric& fabric) {
  const i64 elements = 5 << 20;
  std::vector<double> x(elements);
  for (i64 i = 0; i < elements; ++i) x[static_cast<size_t>(i)] = static_cast<double>(i % 1000 + fabric.rank());
  all_reduce(fabric, all(fabric), "large", 1, x.data(), elements, DType::f64);
  const double ranks = fabric.size(), sum_of_ranks = ranks * (ranks - 1) / 2;
  for (i64 i = 0; i < elements; ++i)
    expect(x[static_cast<size_t>(i)] == static_cast<double>(i % 1000) * ranks + sum_of_ranks, "large sum");
  const Traffic traffic = fabric.traffic();
  expect(std::abs(traffic[1] + traffic[2] - 2 * (fabric.size() - 1) * elements * 8 / fabric.size()) < 64,
         "ring volume");
}

// A message of more than 1 GiB is cut into pieces. Needs 1 GiB of memory on each of two ranks.
void huge_message(Fabric& fabric) {
  const i64 elements = (i64{1} << 27) + 3;
  std::vector<i64> x(static_cast<size_t>(fabric.rank() < 2 ? elements : 0));
  const Block block = contiguous(x.data(), elements * 8);
  if (fabric.rank() == 0)
    for (i64 i = 0; i < elements; ++i) x[static_cast<size_t>(i)] = i;
  if (fabric.rank() == 0) fabric.run(all(fabric), {"huge", 1, {{Op::Kind::send, 1, block, {}, false, DType::i64}}});
  if (fabric.rank() != 1) return;
  fabric.run(all(fabric), {"huge", 1, {{Op::Kind::recv, 0, block, {}, false, DType::i64}}});
  for (i64 i = 0; i < elements; ++i) expect(x[static_cast<size_t>(i)] == i, "element of a huge message");
}

// Two channels, one with an id that is not a valid tag. Messages sent first are received last, so that with few tags
// payloads overtake others that no receive waits for yet.
void few_tags(Fabric& fabric) {
  equal_bits(fabric);
  constexpr int kMessages = 7;
  const std::array<Channel, 2> channels{Channel{0x7fffffff, suite::all_ranks(fabric)},
                                        Channel{40000, suite::all_ranks(fabric)}};
  for (const size_t elements : {size_t{4}, size_t{1} << 18}) {
    const i64 first = static_cast<i64>(100000 * elements);
    const auto value = [](size_t channel, int message) {
      return static_cast<float>(100 * channel + static_cast<size_t>(message));
    };
    const auto send_all = [&](size_t channel) {
      for (int m = 0; m < kMessages; ++m) {
        std::vector<float> x(elements, value(channel, m));
        fabric.run(channels[channel], {"few", first + m, {send(1, x)}});
      }
    };
    if (fabric.rank() == 0) {
      std::thread large([&] {
        if (elements > 4) send_all(0);  // waits until it is taken
      });
      if (elements == 4) send_all(0);
      send_all(1);
      large.join();
    }
    if (fabric.rank() != 1) continue;
    for (const size_t channel : {size_t{1}, size_t{0}})
      for (int m = 0; m < kMessages; ++m) {
        std::vector<float> x(elements);
        fabric.run(channels[channel], {"few", first + m, {recv(0, x)}});
        for (const float got : x) expect(got == value(channel, m), "the message of this channel and turn");
      }
  }
}

// Host names come from the command line of each process, so ranks of one machine can stand for two hosts.
void hosts(Fabric& fabric) {
  expect(fabric.cluster().hosts() == 2, "two hosts");
  std::vector<std::byte> memory(static_cast<size_t>(fabric.size()) * 10);
  std::vector<Block> pieces;
  for (int r = 0; r < fabric.size(); ++r) pieces.push_back(contiguous(memory.data() + 10 * r, 10));
  all_gather(fabric, all(fabric), "gather", 1, pieces);
  const i64 half = fabric.size() / 2;
  expect(fabric.traffic() == Traffic{0, 10 * (half - 1), 10 * half}, "traffic per link class");
}

// ---- scenarios that fail: every rank sees the right message ----

void silence(Fabric& fabric) {
  std::vector<float> x(4);
  const bool late = fabric.rank() == 1;
  const std::string text = error_of([&] {
    if (late) fabric.run(all(fabric), {"layer12.qkv", 3, {recv(0, x)}});
    std::this_thread::sleep_for(1s);
    fabric.run(all(fabric), {"next", 4, {}});
  });
  expect_text(text, "\"layer12.qkv\" heard nothing from rank 0 for 0.3 s. See its log, or raise fabric.timeout.");
  expect_text(text, late ? "rank 1 (host " : "\"next\" stopped: rank 1 (host ");
}

void abort(Fabric& fabric) {
  std::vector<float> x(1 << 20);
  const int last = fabric.size() - 1;
  const auto start = std::chrono::steady_clock::now();
  const std::string text = error_of([&] {
    if (fabric.rank() == last) {
      std::this_thread::sleep_for(200ms);
      fabric.abort("disk full");
      fabric.run(all(fabric), {"late", 1, {}});
    }
    if (fabric.rank() % 2 == 0)
      fabric.run(all(fabric), {"send", 1, {send(last, x)}});
    else
      fabric.run(all(fabric), {"recv", 1, {recv(last, x)}});
  });
  expect_text(text, fmt::format("stopped: rank {} (host ", last));
  expect_text(text, "): disk full");
  expect(std::chrono::steady_clock::now() - start < 5s, "abort within seconds");
}

void mismatch(Fabric& fabric) {
  std::vector<float> x(4), y(5);
  const std::string text = error_of([&] {
    if (fabric.rank() == 0) fabric.run(all(fabric), {"t", 7, {send(1, x)}});
    if (fabric.rank() == 1) fabric.run(all(fabric), {"t", 8, {recv(0, y)}});
    std::this_thread::sleep_for(1s);
    fabric.run(all(fabric), {"next", 9, {}});
  });
  expect_text(text,
              "\"t\" expects transaction 8, 20 bytes, f32 from rank 0, which sends transaction 7, 16 bytes, f32.");
}

// A rank whose fabric is destroyed by an exception informs the others.
void exception(std::unique_ptr<Fabric> fabric) {
  std::vector<float> x(4);
  if (fabric->rank() == 0) {
    try {
      const std::unique_ptr<Fabric> dying = std::move(fabric);
      throw std::runtime_error("out of memory");
    } catch (const std::runtime_error&) {
      return;
    }
  }
  const std::string text = error_of([&] { fabric->run(all(*fabric), {"recv", 1, {recv(0, x)}}); });
  expect_text(text, "ended by an error of its own. See its log.");
}

// A rank killed by signal 9 can't inform the others: the launcher ends them, long before their timeout.
void killed(Fabric& fabric) {
  std::vector<float> x(4);
  if (fabric.rank() == 1) ::kill(::getpid(), SIGKILL);
  fabric.run(all(fabric), {"recv", 1, {recv(1, x)}});
  expect(false, "heard from a dead rank");
}

struct Scenario {
  std::chrono::milliseconds timeout;
  bool fails;
  std::function<void(std::unique_ptr<Fabric>&)> body;
  int tags = 0;
};

template <class Body>
std::function<void(std::unique_ptr<Fabric>&)> on_fabric(Body body) {
  return [body](std::unique_ptr<Fabric>& fabric) { body(*fabric); };
}

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all{
      {"equal_bits", {60s, false, on_fabric(equal_bits)}},
      {"large_messages", {60s, false, on_fabric(large_messages)}},
      {"huge_message", {60s, false, on_fabric(huge_message)}},
      {"few_tags", {60s, false, on_fabric(few_tags), 2}},
      {"one_tag", {60s, false, on_fabric(few_tags), 1}},
      {"hosts", {60s, false, on_fabric(hosts)}},
      {"silence", {300ms, true, on_fabric(silence)}},
      {"late_work", {suite::kShortTimeout, false, on_fabric([](Fabric& fabric) { suite::late_work(fabric, 0, 1); })}},
      {"abort", {60s, true, on_fabric(abort)}},
      {"mismatch", {60s, true, on_fabric(mismatch)}},
      {"exception", {60s, true, [](auto& fabric) { exception(std::move(fabric)); }}},
      {"killed", {60s, true, on_fabric(killed)}}};
  return all;
}

int check_scenario(const std::string& name, const std::string& host) {
  const Scenario& scenario = scenarios().at(name);
  bool first = false, passed = true;
  {
    auto fabric = mpi_fabric({.timeout = scenario.timeout, .strict = true}, host, nullptr, scenario.tags);
    first = fabric->rank() == 0;
    try {
      scenario.body(fabric);
    } catch (const std::exception& error) {
      std::cout << "FAIL " << name << ": " << error.what() << std::endl;
      passed = false;
      if (fabric) fabric->abort(error.what());
    }
  }
  if (scenario.fails) std::this_thread::sleep_for(first ? 3s : 4s);  // mpirun ends all ranks when the first one ends
  if (first && passed) std::cout << "PASS " << name << std::endl;
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::comm

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (!switchyard::comm::scenarios().contains(name)) {
    std::cout << "usage: mpirun -n N mpi_fabric_check SCENARIO [HOST]" << std::endl;
    return 2;
  }
  return switchyard::comm::check_scenario(name, argc > 2 ? argv[2] : "");
}
