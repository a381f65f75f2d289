// Greeting of two ranks: each proves that it knows the job's token without sending it.
//
// The listener sends a Challenge, the other rank answers with a Hello and a proof for the Challenge, and the listener
// answers with a Verdict and a proof for the Hello. Proofs are keyed digests of random numbers of both sides, so that
// an eavesdropper can't replay them and an impostor learns nothing that it could use.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/sha256.hpp"
#include "comm/sockets.hpp"

namespace switchyard::comm {

/// The first bytes of Challenge and Hello; the digit is the version of the messages.
inline constexpr std::array<char, 8> kMagic{'s', 'w', 'i', 't', 'c', 'h', 'y', '2'};

struct Challenge {
  std::array<char, 8> magic = kMagic;
  Digest nonce{};
};

/// join: with rank 0, to learn all addresses; data: pairwise, for the run.
enum class Phase : std::int32_t { join, data };

struct Hello {
  std::array<char, 8> magic = kMagic;
  Phase phase = Phase::join;
  std::int32_t rank = 0, size = 0;
  in_addr address{};  // where this rank accepts data connections; 0: at the source of this connection
  std::int32_t port = 0;
  std::array<char, 256> host{};
  Digest nonce{};
  Digest proof{};
};

struct Verdict {
  std::int32_t accepted = 0;
  std::array<char, 252> reason{};  // if it is refused
  Digest proof{};
};

Challenge make_challenge();
/// Fills in nonce and proof.
void prove(Hello& hello, const Digest& key, const Challenge& challenge);
bool is_proved(const Hello& hello, const Digest& key, const Challenge& challenge);
Verdict accepting(const Digest& key, const Hello& hello);
Verdict refusing(const std::string& reason);
/// Whether the rank that accepted `hello` knows the key.
bool is_proved(const Verdict& verdict, const Digest& key, const Hello& hello);

/// The key derived from the token, and the key of data connections. The latter also needs `session`, which rank 0 sends
/// only to ranks that have joined, so that it is secret even if there is no token.
Digest key_of(const std::string& token);
Digest data_key(const Digest& key, const Digest& session);

/// Text from a peer that isn't trusted: up to its first zero, with question marks in place of control characters.
template <size_t size>
std::string text_of(const std::array<char, size>& field) {
  std::string text;
  for (const char c : field) {
    if (c == 0) break;
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text;
}

}  // namespace switchyard::comm
