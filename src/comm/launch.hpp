// How this process was started, and the fabric to its peers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// mpi: under mpirun, or srun with PMI. tcp: torchrun-style variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or
/// srun without PMI.
enum class Via { none, mpi, tcp };

struct Launch {
  bool distributed = false;
  int rank = 0, size = 1;
  Via via = Via::none;
  std::string master_address;  // tcp: where rank 0 listens
  int master_port = 0;
  std::string host;             // SWITCHYARD_HOST; empty: ask the machine
  std::string interface = {};   // tcp: SWITCHYARD_INTERFACE, where the options name none
  std::string token_file = {};  // tcp: SWITCHYARD_TOKEN_FILE, where the options have no token
  std::string run_id = {};  // tcp: torchrun's id of the run, or Slurm's of the step: the token where there is no other
};

/// From environment variables. UserError naming the variable if one of a
/// set is missing or not a number, if the rank is not below the size, or if the master's port is not a port.
Launch launch_from_environment();
/// The same from any source of variables.
Launch launch_from(const std::function<std::optional<std::string>(const std::string&)>& variable);

/// The token in a file that the ranks of a job share: its text, trimmed of white space. UserError if it can't be read
/// or is empty.
std::string read_token(const std::string& path);

/// The fabric of a distributed launch. An interface or token that `options` leave empty comes from the launch.
/// UserError if it needs MPI and this build has none.
std::unique_ptr<Fabric> distributed_fabric(const Launch& launch, FabricOptions options);

}  // namespace switchyard::comm
