// What two ranks say before they trust each other, and how each proves that it knows the job's token without telling
// it.
//
// The listener sends a Challenge, the other a Hello with a proof for it, the listener a Verdict with a proof for the
// Hello. Proofs are keyed digests of random numbers of both sides: nothing that was overheard serves again, and an
// impostor learns nothing that it could use.
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

enum class Phase : std::int32_t { join, data };  // with rank 0, to learn where all are; then pairwise, for good

struct Hello {
  std::array<char, 8> magic = kMagic;
  Phase phase = Phase::join;
  std::int32_t rank = 0, size = 0;
  in_addr address{};  // where this rank takes data connections; 0: where this connection comes from
  std::int32_t port = 0;
  std::array<char, 256> host{};
  Digest nonce{};
  Digest proof{};
};

struct Verdict {
  std::int32_t accepted = 0;
  std::array<char, 252> reason{};  // where it isn't
  Digest proof{};
};

Challenge make_challenge();
/// Fills in nonce and proof.
void prove(Hello& hello, const Digest& key, const Challenge& challenge);
bool is_proved(const Hello& hello, const Digest& key, const Challenge& challenge);
Verdict accepting(const Digest& key, const Hello& hello);
Verdict refusing(const std::string& reason);
/// Whether who accepted `hello` knows the key.
bool is_proved(const Verdict& verdict, const Digest& key, const Hello& hello);

/// The key that stands for the token, and the one for data connections: also who knows no token can't make it without
/// `session`, which rank 0 tells those that have joined.
Digest key_of(const std::string& token);
Digest data_key(const Digest& key, const Digest& session);

/// Text of a peer that isn't trusted: up to its first zero, with question marks where a terminal would act on it.
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
