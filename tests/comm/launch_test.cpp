#include "comm/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "../scratch.hpp"
#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch(const Variables& variables) {
  return launch_from([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string error_of(const Variables& variables) {
  try {
    launch(variables);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Launch, WithoutVariablesItIsOneProcess) {
  const Launch alone = launch({});
  EXPECT_FALSE(alone.distributed);
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.via, Via::none);
}

TEST(Launch, UnderMpirunRankAndSizeAreOpenMpis) {
  const Launch l = launch({{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"SWITCHYARD_HOST", "b"}});
  EXPECT_TRUE(l.distributed);
  EXPECT_EQ(l.via, Via::mpi);
  EXPECT_EQ(l.rank, 3);
  EXPECT_EQ(l.size, 4);
  EXPECT_EQ(l.host, "b");
}

TEST(Launch, UnderTheMpirunOfMpichRankAndSizeAreThoseOfPmi) {
  const Variables of_hydra{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "1"}};
  EXPECT_EQ(launch(of_hydra).via, Via::mpi);
  EXPECT_EQ(launch(of_hydra).rank, 3);
  EXPECT_EQ(launch(of_hydra).size, 4);
  Variables torchrun = of_hydra;  // which it started
  torchrun.insert({{"RANK", "5"},
                   {"WORLD_SIZE", "8"},
                   {"MASTER_ADDR", "a"},
                   {"MASTER_PORT", "1"},
                   {"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_EQ(launch(torchrun).via, Via::tcp);
}

TEST(Launch, SlurmCountsOnlyInAStep) {
  Variables batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "70"}};
  EXPECT_FALSE(launch(batch).distributed);
  batch["SLURM_STEP_ID"] = "0";
  batch["PMIX_RANK"] = "0";
  EXPECT_EQ(launch(batch).size, 8);
  EXPECT_EQ(launch(batch).via, Via::mpi);
}

TEST(Launch, AStepOfSlurmWithoutPmiMeansTcp) {
  Variables step{{"SLURM_PROCID", "2"},    {"SLURM_NTASKS", "8"},  {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_JOB_ID", "1251"}, {"SLURM_STEP_ID", "3"}, {"SLURM_STEP_NODELIST", "gpu[07-09],other"}};
  const Launch l = launch(step);
  EXPECT_EQ(l.via, Via::tcp);
  EXPECT_EQ(l.rank, 2);
  EXPECT_EQ(l.size, 4) << "of the step, not of the job";
  EXPECT_EQ(l.master_address, "gpu07");
  EXPECT_EQ(l.master_port, 12000 + (1251 * 16 + 3) % 20000);
  EXPECT_EQ(l.run_id, "slurm 1251.3");
  step["SLURM_JOB_ID"] = "4294967295";
  EXPECT_EQ(launch(step).run_id, "slurm 4294967295.3") << "of a federation";
  step["SLURM_JOB_ID"] = "1251";
  for (const auto& [hosts, first] : std::map<std::string, std::string>{
           {"a", "a"}, {"a-1,b", "a-1"}, {"a[3,5]", "a3"}, {"a[3]-ib,b", "a3-ib"}, {"r[1-2]n[04-05]", "r1n04"}}) {
    step["SLURM_STEP_NODELIST"] = hosts;
    EXPECT_EQ(launch(step).master_address, first) << hosts;
  }
  Variables own = step;
  own["MASTER_ADDR"] = "10.0.0.1";
  own["MASTER_PORT"] = "29500";
  EXPECT_EQ(launch(own).master_address, "10.0.0.1");
  EXPECT_EQ(launch(own).master_port, 29500);
  own["RANK"] = "0";  // a script's own variables, or torchrun's
  own["WORLD_SIZE"] = "2";
  EXPECT_EQ(launch(own).size, 2);
  step["SLURM_STEP_NUM_TASKS"] = "1";
  step["SLURM_PROCID"] = "0";
  EXPECT_FALSE(launch(step).distributed) << "ranks are threads";
  step["SLURM_STEP_NUM_TASKS"] = "2";
  step.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(error_of(step),
            "environment: this step of Slurm has no SLURM_STEP_NODELIST. Set MASTER_ADDR to the host of rank 0.");
}

TEST(Launch, TorchrunsVariablesMeanTcp) {
  Variables torchrun{
      {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  const Launch l = launch(torchrun);
  EXPECT_EQ(l.via, Via::tcp);
  EXPECT_EQ(l.rank, 2);
  EXPECT_EQ(l.master_address, "node1");
  EXPECT_EQ(l.master_port, 29500);
  torchrun["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(launch(torchrun).master_port, 29501);
  EXPECT_EQ(launch(torchrun).run_id, "");  // torchrun's word for no id
  torchrun["TORCHELASTIC_RUN_ID"] = "job-7";
  EXPECT_EQ(launch(torchrun).run_id, "job-7");
  Variables started = torchrun;  // by srun or mpirun, on each host
  started.insert({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}, {"PMIX_RANK", "0"}});
  EXPECT_EQ(launch(started).rank, 2);
  started.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_EQ(launch(started).via, Via::tcp);
  EXPECT_EQ(launch(started).size, 4);
  EXPECT_FALSE(launch({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).distributed);
}

TEST(Launch, InterfaceAndTokenFileComeFromTheLauncher) {
  const Launch l = launch({{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "a"},
                           {"MASTER_PORT", "1"},
                           {"SWITCHYARD_INTERFACE", "ib0"},
                           {"SWITCHYARD_TOKEN_FILE", "/run/token"}});
  EXPECT_EQ(l.interface, "ib0");
  EXPECT_EQ(l.token_file, "/run/token");
}

TEST(Launch, ATokenIsTheTextOfItsFile) {
  const Scratch folder;
  const auto written = [&](const std::string& text) { return folder.file("token", text); };
  EXPECT_EQ(read_token(written("  s3cret word\n\n")), "s3cret word");
  const auto error = [](const std::string& file) -> std::string {
    try {
      return read_token(file);
    } catch (const UserError& caught) {
      return caught.what();
    }
  };
  EXPECT_THAT(error(written(" \n")), testing::StartsWith("the token's file " + (folder / "token").string() +
                                                         " is empty. Write a secret into it: "));
  EXPECT_EQ(error("/nonesuch"),
            "the token's file /nonesuch can't be read: No such file or directory. Make one for the job that all its "
            "ranks can read.");
  EXPECT_THAT(error("/"), testing::HasSubstr("can't be read: Is a directory."));
}

TEST(Launch, FaultsNameTheVariable) {
  EXPECT_EQ(
      error_of({{"OMPI_COMM_WORLD_RANK", "0"}}),
      "environment: OMPI_COMM_WORLD_SIZE is missing, but other variables of this launch are set. Set it, or start "
      "with mpirun.");
  EXPECT_EQ(
      error_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
      "environment: RANK = \"x\" is not a number of 0 or more. Correct it, or unset it to start ranks as threads.");
  EXPECT_EQ(
      error_of({{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}),
      "environment: WORLD_SIZE = \"99999999999\" is too large. Correct it, or unset it to start ranks as threads.");
  EXPECT_EQ(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "environment: RANK = 2 is not below WORLD_SIZE = 2. Ranks are counted from 0.");
  EXPECT_EQ(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
            "environment: RANK and WORLD_SIZE are set, but MASTER_ADDR is missing. Set it to the host of rank 0.");
}

TEST(Launch, OneOfRankAndSizeAloneIsRefused) {
  EXPECT_EQ(error_of({{"WORLD_SIZE", "2"}}),
            "environment: WORLD_SIZE = \"2\", but RANK is missing. Set both, as torchrun does, or unset WORLD_SIZE to "
            "start ranks as threads.");
  EXPECT_EQ(error_of({{"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}}),
            "environment: RANK = \"0\", but WORLD_SIZE is missing. Set both, as torchrun does, or unset RANK to start "
            "ranks as threads.");
}

TEST(Launch, AWrongPortIsRefused) {
  Variables torchrun{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}};
  EXPECT_THAT(error_of(torchrun), testing::StartsWith("environment: MASTER_PORT is missing"));
  for (const char* port : {"0", "65536", "99999"}) {
    torchrun["MASTER_PORT"] = port;
    EXPECT_EQ(
        error_of(torchrun),
        fmt::format(
            "environment: MASTER_PORT = {} is not a port. Use one from 1 to 65535 that is free on the host of rank 0.",
            port));
  }
  torchrun["MASTER_PORT"] = "65535";
  EXPECT_EQ(launch(torchrun).master_port, 65535);
  torchrun["TORCHELASTIC_RUN_ID"] = "none";  // its own store has the port, the program the next one
  EXPECT_THAT(error_of(torchrun), testing::HasSubstr("from 1 to 65534"));
}

TEST(Launch, MoreRanksThanThereCanBeAreRefused) {
  EXPECT_EQ(error_of({{"RANK", "0"}, {"WORLD_SIZE", "65537"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}}),
            "environment: WORLD_SIZE = 65537 is above 65536, the most ranks of a run. Correct it.");
}

TEST(Launch, ASingleProcessHasNoDistributedFabric) { EXPECT_THROW(distributed_fabric(Launch{}, {}), InternalError); }

}  // namespace
}  // namespace switchyard::comm
