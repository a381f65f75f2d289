// Ranks as MPI processes. One progress thread per process makes all MPI calls; others sleep until it has their data.
#pragma once

#include <memory>
#include <string>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// Initializes MPI, and finalizes it on destruction; once per process. After an aborted fabric MPI is not finalized,
/// because that would wait for ranks that are gone; the process has to end with a non-zero exit code, upon which mpirun
/// ends the others.
class MpiSession {
 public:
  /// ClusterError if this MPI can't be called from a thread other than the first.
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  void leave_unfinished() { unfinished_ = true; }

 private:
  bool unfinished_ = false;
};

/// This process's end; all processes call it, on the thread that also destroys it. `host` names this machine for the
/// grouping of ranks by host (empty: the name that MPI gives). Without a session it starts MPI and ends it with the
/// fabric. Channels may have any id. tags: number of tags for payloads of one sender and receiver; 0: as many as
/// MPI_TAG_UB allows.
std::unique_ptr<Fabric> mpi_fabric(FabricOptions options, const std::string& host = "",
                                   std::shared_ptr<MpiSession> session = nullptr, int tags = 0);

}  // namespace switchyard::comm
