#include "comm/launch.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/environment.hpp"
#include "base/errors.hpp"
#include "base/file_text.hpp"
#include "comm/tcp_fabric.hpp"
#ifdef SWITCHYARD_MPI
#include "comm/mpi_fabric.hpp"
#endif

namespace switchyard::comm {
namespace {

using Variables = std::function<std::optional<std::string>(const std::string&)>;

template <class Number = int>
Number number(const Variables& variable, const std::string& name) {
  const auto text = variable(name);
  if (!text)
    user_error("environment: {} is missing, but other variables of this launch are set. Set it, or start with mpirun.",
               name);
  Number value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error == std::errc::result_out_of_range)
    user_error("environment: {} = \"{}\" is too large. Correct it, or unset it to start ranks as threads.", name,
               *text);
  if (error != std::errc{} || end != text->data() + text->size() || value < 0)
    user_error(
        "environment: {} = \"{}\" is not a number of 0 or more. Correct it, or unset it to start ranks as threads.",
        name, *text);
  return value;
}

// Port 0 would be another one for each rank.
int port(const Variables& variable, const std::string& name, int most) {
  const int value = number(variable, name);
  if (value < 1 || value > most)
    user_error("environment: {} = {} is not a port. Use one from 1 to {} that is free on the host of rank 0.", name,
               value, most);
  return value;
}

// One of two variables that only make sense together.
void need_both(const Variables& variable, const std::string& there, const std::string& missing) {
  if (variable(there) && !variable(missing))
    user_error(
        "environment: {} = \"{}\", but {} is missing. Set both, as torchrun does, or unset {} to start ranks as "
        "threads.",
        there, *variable(there), missing, there);
}

Launch checked(Launch launch, const std::string& rank, const std::string& size) {
  constexpr int kMostRanks = 1 << 16;  // same as run.ranks
  if (launch.size > kMostRanks)
    user_error("environment: {} = {} is above {}, the most ranks of a run. Correct it.", size, launch.size, kMostRanks);
  if (launch.rank >= launch.size)
    user_error("environment: {} = {} is not below {} = {}. Ranks are counted from 0.", rank, launch.rank, size,
               launch.size);
  return launch;
}

Launch of_variables(const Variables& variable, Via via, const std::string& rank, const std::string& size) {
  Launch launch;
  launch.distributed = true;
  launch.via = via;
  launch.rank = number(variable, rank);
  launch.size = number(variable, size);
  return checked(launch, rank, size);
}

// Slurm's list of a step's hosts begins with the one of rank 0: node3, node3,node7 or node[03-05,07],other.
std::string first_host(const std::string& hosts) {
  const size_t end = hosts.find_first_of(",[");
  if (end == std::string::npos || hosts[end] == ',') return hosts.substr(0, end);
  const size_t first = end + 1, rest = hosts.find(']', first);
  const size_t length = hosts.find_first_of("-,]", first) - first;
  std::string host = hosts.substr(0, end) + hosts.substr(first, length);
  // A name may go on after the brackets, and have further ones.
  if (rest != std::string::npos && rest + 1 < hosts.size() && hosts[rest + 1] != ',')
    host += first_host(hosts.substr(rest + 1));
  return host;
}

// The tasks of a step without PMI. They share a port that other steps of a host hardly have, and prove each other that
// they belong to the step.
Launch of_step(const Variables& variable) {
  Launch launch = of_variables(variable, Via::tcp, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (launch.size == 1) return {};
  // Jobs of a federation are numbered up to 2^32 - 1.
  const i64 job = number<i64>(variable, "SLURM_JOB_ID"), step = number<i64>(variable, "SLURM_STEP_ID");
  constexpr int kFirstPort = 12000, kPorts = 20000, kStepsOfAJob = 16;  // below those that connections get
  launch.master_address = variable("MASTER_ADDR").value_or(first_host(variable("SLURM_STEP_NODELIST").value_or("")));
  if (launch.master_address.empty())
    user_error("environment: this step of Slurm has no SLURM_STEP_NODELIST. Set MASTER_ADDR to the host of rank 0.");
  launch.master_port = variable("MASTER_PORT")
                           ? port(variable, "MASTER_PORT", 65535)
                           : kFirstPort + static_cast<int>((job * kStepsOfAJob + step % kStepsOfAJob) % kPorts);
  launch.run_id = fmt::format("slurm {}.{}", job, step);
  return launch;
}

Launch by_starter(const Variables& variable) {
  // What torchrun starts has the variables of the mpirun or srun that started torchrun, too.
  const bool by_torchrun = variable("TORCHELASTIC_RUN_ID").has_value();
  if (!by_torchrun && variable("OMPI_COMM_WORLD_RANK"))
    return of_variables(variable, Via::mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  // A batch script's own shell has SLURM_PROCID too, but belongs to no step of srun.
  const bool in_step = variable("SLURM_PROCID") && variable("SLURM_STEP_ID");
  const bool offered = variable("PMIX_RANK") || variable("PMI_RANK") || variable("PMI_FD");
  if (!by_torchrun && in_step && offered) return of_variables(variable, Via::mpi, "SLURM_PROCID", "SLURM_NTASKS");
  // MPICH and its relatives.
  if (!by_torchrun && variable("PMI_RANK") && variable("PMI_SIZE"))
    return of_variables(variable, Via::mpi, "PMI_RANK", "PMI_SIZE");
  need_both(variable, "WORLD_SIZE", "RANK");
  need_both(variable, "RANK", "WORLD_SIZE");
  if (variable("RANK")) {
    Launch launch = of_variables(variable, Via::tcp, "RANK", "WORLD_SIZE");
    if (launch.size == 1) return {};
    const auto address = variable("MASTER_ADDR");
    if (!address)
      user_error("environment: RANK and WORLD_SIZE are set, but MASTER_ADDR is missing. Set it to the host of rank 0.");
    launch.master_address = *address;
    const auto run_id = variable("TORCHELASTIC_RUN_ID");
    launch.master_port = port(variable, "MASTER_PORT", run_id ? 65534 : 65535);
    // torchrun's own store uses the port that it sets, so the next one is taken. It gives "none" for a run without an
    // id.
    if (run_id) ++launch.master_port;
    if (run_id && *run_id != "none") launch.run_id = *run_id;
    return launch;
  }
  if (in_step && variable("SLURM_STEP_NUM_TASKS")) return of_step(variable);
  return {};
}

}  // namespace

Launch launch_from(const Variables& variable) {
  Launch launch = by_starter(variable);
  launch.host = variable("SWITCHYARD_HOST").value_or("");
  launch.interface = variable("SWITCHYARD_INTERFACE").value_or("");
  launch.token_file = variable("SWITCHYARD_TOKEN_FILE").value_or("");
  return launch;
}

Launch launch_from_environment() { return launch_from(environment); }

std::string read_token(const std::string& path) {
  const std::optional<std::string> text = file_text(path);
  if (!text)
    user_error("the token's file {} can't be read: {}. Make one for the job that all its ranks can read.", path,
               std::strerror(errno));
  std::string token = text->substr(0, text->find('\0'));
  constexpr const char* kSpace = " \t\r\n";
  token.erase(token.find_last_not_of(kSpace) + 1);
  token.erase(0, token.find_first_not_of(kSpace));
  if (token.empty())
    user_error("the token's file {} is empty. Write a secret into it: head -c 32 /dev/urandom | base64 > {}", path,
               path);
  return token;
}

std::unique_ptr<Fabric> distributed_fabric(const Launch& launch, FabricOptions options) {
  check(launch.distributed, "distributed_fabric: started as a single process");
  if (launch.via == Via::tcp) {
    if (options.interface.empty()) options.interface = launch.interface;
    if (options.token.empty())
      options.token = launch.token_file.empty() ? launch.run_id : read_token(launch.token_file);
    return tcp_fabric(launch, std::move(options));
  }
#ifdef SWITCHYARD_MPI
  auto fabric = mpi_fabric(options, launch.host);
  // A launcher and an MPI that don't know each other start each process as the only rank of its own job.
  if (fabric->rank() != launch.rank || fabric->size() != launch.size)
    user_error(
        "started as rank {} of {}, but MPI says that this is rank {} of {}: its library is not that of the launcher. "
        "Use the mpirun of the MPI that the program was built with, srun with a plug-in that this MPI knows (srun "
        "--mpi=list), or torchrun's variables.",
        launch.rank, launch.size, fabric->rank(), fabric->size());
  return fabric;
#else
  user_error(
      "started under MPI as rank {} of {}, but this build has no MPI. Build with -DSWITCHYARD_MPI=ON, or use "
      "torchrun's variables.",
      launch.rank, launch.size);
#endif
}

}  // namespace switchyard::comm
