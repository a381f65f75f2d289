// Common parts of all fabrics: the rules of a transaction, and the messages when one is broken.
#pragma once

#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// The properties of a message that sender and receiver must agree on.
struct Envelope {
  i64 number = 0;
  i64 bytes = 0;
  DType dtype = DType::f32;
  bool operator==(const Envelope&) const = default;
};
/// What a receiver expects becomes what the sender said in the bytes of a message that may be shorter (Op::at_most).
void take_size(Envelope& expected, const Envelope& said, bool at_most);
Envelope envelope_of(const Transaction& transaction, const Op& op);

/// Checks that peers are other members of the channel, locals agree in size, and rows don't overlap; that there are no
/// collectives, or, if the fabric serves them, that their blocks are those of their group. InternalError naming the
/// rank, the transaction and the operation.
void check_transaction(int rank, const Channel& channel, const Transaction& transaction, bool serves = false);
/// This rank's place in the group.
size_t place_in(const Collective& collective, int rank);
/// What all of its ranks must agree on. bytes: of a piece.
Envelope envelope_of(const Transaction& transaction, const Collective& collective);
/// InternalError if a block that is sent is written in the same transaction. Quadratic, so only for strict mode.
void check_sends_unwritten(int rank, const Transaction& transaction);
/// Whether operation `index`, a receive that neither adds nor decodes, may be written before its turn: nothing earlier
/// in the list reads or writes its memory.
bool may_arrive_early(const Transaction& transaction, size_t index);
/// Fills every block for which may_arrive_early holds with 0xFF.
void poison_receives(const Transaction& transaction);

/// Checks that the numbers of a channel's transactions never fall. Thread-safe.
class TransactionOrder {
 public:
  /// InternalError naming rank, channel and both numbers if `transaction` has a lower one than that before it.
  void check_next(int rank, const Channel& channel, const Transaction& transaction);

 private:
  std::mutex mutex_;
  std::map<int, i64> last_;
};

/// Adds the bytes sent per link class; local operations count 0. Of collectives what direct messages would be: each
/// piece to each rank that lacks it, each partial of a piece to its owner.
void count_traffic(Traffic& traffic, int rank, const Transaction& transaction, const cluster::Cluster& cluster);

/// "rank 5 (host b)"; the host's number if it has no name.
std::string rank_label(int rank, const cluster::Cluster& cluster);
/// What ended `who`, for others: an error that doesn't begin with a rank is reported with its rank.
std::string reason_of(const std::string& who, const std::string& error);
/// Whether this error of the fabric's rank is what ended the job, and no consequence of that.
bool ended_the_job(const Fabric& fabric, const std::exception& error);
/// Messages of ClusterErrors. `who` is rank_label.
std::string heard_nothing(const std::string& who, const Transaction& transaction, int peer,
                          std::chrono::milliseconds timeout);
std::string not_taken(const std::string& who, const Transaction& transaction, int peer,
                      std::chrono::milliseconds timeout);
/// For messages that a device moves, to or from any of `peers`.
std::string not_exchanged(const std::string& who, const std::string& name, const std::vector<int>& peers,
                          std::chrono::milliseconds timeout);
std::string device_failed(const std::string& who, const std::string& name, const std::vector<int>& peers,
                          const std::string& text);
std::string not_ended(const std::string& who, const std::string& peer, std::chrono::milliseconds timeout);
std::string disagreement(const std::string& who, const Transaction& transaction, int peer, const Envelope& mine,
                         const Envelope& theirs);
std::string stopped(const std::string& who, const std::string& name, const std::string& reason);

}  // namespace switchyard::comm
