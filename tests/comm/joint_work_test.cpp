#include "comm/joint_work.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/errors.hpp"
#include "comm/collectives.hpp"
#include "rank_threads.hpp"
#include "tcp_ranks.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

JointWork joint_work(Fabric& fabric, std::chrono::milliseconds timeout) {
  return {fabric, everyone(fabric, 7), sign_interval(timeout)};
}

// Ranks as threads over memory and over sockets; a rank that an exception ends aborts, as train's ranks do.
struct Ranks {
  const char* name;
  std::function<std::vector<std::string>(int, FabricOptions, const std::function<void(Fabric&)>&)> run;
};
std::ostream& operator<<(std::ostream& out, const Ranks& ranks) { return out << ranks.name; }

class JointWorkOf : public testing::TestWithParam<Ranks> {
 protected:
  std::vector<std::string> run(int ranks, std::chrono::milliseconds timeout,
                               const std::function<void(Fabric&, JointWork&)>& body) {
    return GetParam().run(ranks, {timeout, true}, [&](Fabric& fabric) {
      JointWork work = joint_work(fabric, timeout);
      try {
        body(fabric, work);
      } catch (const std::exception& error) {
        fabric.abort(error.what());
        throw;
      }
    });
  }
};

TEST_P(JointWorkOf, RanksIsWaitedForLongerThanTheTimeout) {
  std::atomic<int> ended = 0;
  const auto ends = run(3, 800ms, [&](Fabric& fabric, JointWork& work) {
    work.run("shards", [](const auto&) {});
    work.run("slow", [&](const auto&) {
      if (fabric.rank() == 1) std::this_thread::sleep_for(3s);
      ++ended;
    });
    EXPECT_EQ(ended, 3) << "nobody goes on before all have ended";
    work.run("after", [](const auto&) {});
  });
  EXPECT_THAT(ends, Each(""));
}

TEST_P(JointWorkOf, RanksEndsWithTheErrorOfTheOneThatFailsOnceNobodyWorksAnyMore) {
  std::atomic<bool> ended = false;
  const auto ends = run(3, 20s, [&](Fabric& fabric, JointWork& work) {
    try {
      work.run("shards", [&](const auto&) {
        if (fabric.rank() == 2) throw ClusterError("disk full");
        if (fabric.rank() == 0) {
          std::this_thread::sleep_for(300ms);
          ended = true;
        }
      });
    } catch (const std::exception&) {
      EXPECT_TRUE(ended);
      throw;
    }
  });
  EXPECT_EQ(ends[2], "disk full");
  for (const size_t rank : {0u, 1u})
    EXPECT_THAT(ends[rank], HasSubstr("\"shards\" stopped: rank 2 (host b): disk full"));
}

TEST_P(JointWorkOf, RanksEndsWhenOneStaysAwayAndThoseAtWorkHearOfItAtTheirNextCheck) {
  std::atomic<bool> stopped = false;
  const auto ends = run(3, 500ms, [&](Fabric& fabric, JointWork& work) {
    if (fabric.rank() == 2) {
      while (!stopped) std::this_thread::sleep_for(1ms);
      return;
    }
    work.run("shards", [&](const auto& check) {
      while (fabric.rank() == 0) {
        try {
          check();
        } catch (const ClusterError&) {
          stopped = true;
          throw;
        }
        std::this_thread::sleep_for(1ms);
      }
    });
  });
  for (const size_t rank : {0u, 1u})
    EXPECT_THAT(ends[rank],
                HasSubstr("\"shards\" heard nothing from rank 2 for 0.5 s. See its log, or raise fabric.timeout."))
        << rank;
}

TEST_P(JointWorkOf, RanksTellWhyTheJobEndedAndNotWhatFailedAfterThat) {
  const auto ends = run(2, 20s, [&](Fabric& fabric, JointWork& work) {
    if (fabric.rank() == 1) return fabric.abort("it is unwell");
    work.run("shards", [&](const auto& check) {
      try {
        for (;; std::this_thread::sleep_for(1ms)) check();
      } catch (const ClusterError&) {
        throw ClusterError("its folder is gone");
      }
    });
  });
  EXPECT_THAT(ends[0], HasSubstr("\"shards\" stopped: rank 1 (host b): it is unwell"));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, JointWorkOf,
                         testing::Values(Ranks{"threads",
                                               [](int ranks, FabricOptions options, const auto& body) {
                                                 return run_ranks(ranks, options, body);
                                               }},
                                         Ranks{"tcp", run_tcp}),
                         [](const auto& info) { return info.param.name; });

TEST(JointWork, EndsAtOnceWhenAProcessIsKilledAtItsWork) {
  const int port = free_port();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto fabric = tcp_fabric(launch_of(1, 2, port, "b"), {60s, false});
    joint_work(*fabric, 60s).run("shards", [](const auto&) { ::kill(::getpid(), SIGKILL); });
  }
  const auto fabric = tcp_fabric(launch_of(0, 2, port), {60s, false});
  const auto start = std::chrono::steady_clock::now();
  try {
    joint_work(*fabric, 60s).run("shards", [](const auto&) {});
    ADD_FAILURE() << "a dead rank ended its work";
  } catch (const ClusterError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 (host b) is gone ("));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 40s);
  ::waitpid(child, nullptr, 0);
}

TEST(SignInterval, HasFourSignsWithinTheTimeoutAndOneASecond) {
  EXPECT_EQ(sign_interval(30s), 1s);
  EXPECT_EQ(sign_interval(2s), 500ms);
  EXPECT_EQ(sign_interval(1ms), 1ms);
}

}  // namespace
}  // namespace switchyard::comm
