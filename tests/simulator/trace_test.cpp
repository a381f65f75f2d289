#include "simulator/trace.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"
#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

TEST(Trace, has_an_event_for_every_stretch_of_every_rank) {
  const compiler::Plans plans = plans_under({"1,1,2"}, 1, 2);
  const Step step(plans, 2);
  const Simulation simulation = simulate(step.program, step.plan, plans, arithmetic_only(1, 2));
  const nlohmann::json trace = nlohmann::json::parse(trace_of(step.program, simulation));
  double busy[2] = {0, 0};
  int names = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "compute") busy[event["pid"].get<int>()] += 1e-6 * event["dur"].get<double>();
    names += event["name"] == "process_name";
  }
  EXPECT_EQ(names, 2);
  for (const size_t rank : {0, 1}) EXPECT_NEAR(busy[rank], simulation.ranks[rank].compute, 1e-9);
}

TEST(Trace, that_cannot_be_written_is_told) {
  const std::string path = testing::TempDir() + "no-such-folder/trace.json";
  EXPECT_EQ(compiler::user_message([&] { write_trace(path, {}, {}); }), "cannot write " + path + ": No such file or directory. Choose another --trace.");
}

}  // namespace
}  // namespace switchyard::simulator
