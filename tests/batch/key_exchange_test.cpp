#include "batch/key_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/errors.hpp"
#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What lies in each row of a shard: document and position; (-1, 0): padding.
using Token = std::pair<i64, int>;
std::vector<Token> tokens_of(const std::vector<Piece>& shard) {
  std::vector<Token> rows;
  for (const Piece& piece : shard)
    for (int i = 0; i < piece.count; ++i) rows.emplace_back(piece.doc, piece.doc < 0 ? 0 : piece.first + i);
  return rows;
}

// Micro-batches of a few documents on up to seven ring ranks, and the host of each rank; in any order: hosts may come
// again.
struct Drawn {
  std::vector<PlacedDocument> documents;
  MicroBatch micro_batch;
  std::vector<int> hosts;
};

Drawn drawn(std::mt19937_64& random, bool in_any_order) {
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  Drawn of;
  const int ranks = 1 + draw(7), per_host = 1 + draw(4);
  for (int doc = 0, count = 1 + draw(6); doc < count; ++doc) {
    const int degree = 1 + draw(ranks);
    of.documents.push_back(
        {.doc = 10 + doc, .tokens = 1 + draw(30), .span = {draw(ranks - degree + 1), degree, draw(2) == 1}});
  }
  of.micro_batch = lay_out(of.documents, ranks, 1 + draw(3), std::max(1, 2 * draw(3)));
  for (int rank = 0; rank < ranks; ++rank) of.hosts.push_back(rank / per_host);
  if (in_any_order) std::ranges::shuffle(of.hosts, random);
  return of;
}

// Memory for keys that a rank receives, as it is after each round. A message brings rows over others that nobody needs
// any more, or nothing.
constexpr Token kNothing{-2, 0};
class Replay {
 public:
  Replay(const KeyExchange& exchange, const MicroBatch& micro_batch) : exchange_(exchange) {
    for (const auto& shard : micro_batch.shard) shards_.push_back(tokens_of(shard));
    for (std::size_t rank = 0; rank < shards_.size(); ++rank) {
      keys_.emplace_back(static_cast<std::size_t>(exchange.seen[rank].rows), kNothing);
      for (const KeyRows& rows : exchange.seen[rank].own) put(rank, shards_[rank], rows.row, rows.at, rows.count);
    }
  }
  void run(std::size_t round) {
    const std::vector<std::vector<Token>> before = keys_;
    for (const KeyMessage& message : exchange_.rounds[round]) {
      const auto from = static_cast<std::size_t>(message.from);
      EXPECT_NE(message.from, message.to);
      put(static_cast<std::size_t>(message.to), message.passed_on ? before[from] : shards_[from], message.row,
          message.at, message.count);
    }
  }
  // In which blocks[step] of a rank count.
  const std::vector<Token>& keys(std::size_t rank, std::size_t step) const {
    return step == 0 ? shards_[rank] : keys_[rank];
  }
  const std::vector<Token>& shard(std::size_t rank) const { return shards_[rank]; }

 private:
  void put(std::size_t rank, const std::vector<Token>& from, i64 row, i64 at, int count) {
    for (int i = 0; i < count; ++i) {
      keys_[rank].at(static_cast<std::size_t>(at + i)) = from.at(static_cast<std::size_t>(row + i));
      EXPECT_NE(from[static_cast<std::size_t>(row + i)], kNothing) << "a row that is passed on before it came";
    }
  }
  const KeyExchange& exchange_;
  std::vector<std::vector<Token>> shards_, keys_;
};

// Keys that a query of a block sees.
std::vector<Token> seen_by(const QueryBlock& block, int query, const std::vector<Token>& keys) {
  const auto first = keys.begin() + block.k;
  EXPECT_LE(block.k + block.kn, std::ssize(keys));
  return {first, first + (block.causal ? block.kn - block.qn + query + 1 : block.kn)};
}

class AnyExchange : public testing::TestWithParam<KeyPassing> {};
INSTANTIATE_TEST_SUITE_P(Passing, AnyExchange, testing::Values(KeyPassing::gather, KeyPassing::ring),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST_P(AnyExchange, lets_each_query_see_the_keys_up_to_its_own_once) {
  std::mt19937_64 random(5);
  std::size_t most_rounds = 0;
  for (int test = 0; test < 300; ++test) {
    const auto [documents, micro_batch, hosts] = drawn(random, test % 3 == 0);
    const KeyExchange exchange = key_exchange(micro_batch, GetParam(), hosts);
    ASSERT_EQ(exchange.seen.size(), hosts.size());
    Replay replay(exchange, micro_batch);
    std::map<Token, std::set<Token>> seen;
    std::vector<double> pairs(hosts.size());
    for (std::size_t step = 0; step <= exchange.rounds.size(); ++step) {
      if (step > 0) replay.run(step - 1);
      for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        ASSERT_EQ(exchange.seen[rank].blocks.size(), exchange.rounds.size() + 1);
        std::set<int> rows;
        for (const QueryBlock& block : exchange.seen[rank].blocks[step]) {
          pairs[rank] += attention_pairs(block);
          for (int i = 0; i < block.qn; ++i) {
            EXPECT_TRUE(rows.insert(block.q + i).second) << "a query is in one block of a step";
            const Token query = replay.shard(rank).at(static_cast<std::size_t>(block.q + i));
            for (const Token& key : seen_by(block, i, replay.keys(rank, step)))
              EXPECT_TRUE(seen[query].insert(key).second) << "a key that is seen twice";
          }
        }
      }
    }
    for (const PlacedDocument& document : documents)
      for (int position = 0; position < document.tokens; ++position) {
        std::set<Token> expected;
        for (int key = 0; key <= position; ++key) expected.emplace(document.doc, key);
        EXPECT_EQ(seen[Token(document.doc, position)], expected);
      }
    for (std::size_t rank = 0; rank < hosts.size(); ++rank)
      EXPECT_EQ(pairs[rank], attention_pairs(micro_batch.shard[rank]));
    most_rounds = std::max(most_rounds, exchange.rounds.size());
  }
  EXPECT_EQ(most_rounds, GetParam() == KeyPassing::gather ? 2u : 8u);
}

// What each ring rank receives of all documents, from its own host and from others.
std::vector<ReceivedKeys> received(const KeyExchange& exchange, const std::vector<int>& hosts) {
  std::vector<ReceivedKeys> all(hosts.size());
  for (const std::vector<KeyMessage>& round : exchange.rounds)
    for (const KeyMessage& message : round) {
      const auto from = static_cast<std::size_t>(message.from), to = static_cast<std::size_t>(message.to);
      EXPECT_TRUE(!message.passed_on || hosts[from] == hosts[to]);
      (hosts[from] == hosts[to] ? all[to].inside : all[to].across) += message.count;
    }
  return all;
}

TEST_P(AnyExchange, brings_what_the_ring_map_counts_to_each_host_once) {
  std::mt19937_64 random(6);
  i64 across = 0;
  for (int test = 0; test < 300; ++test) {
    const auto [documents, micro_batch, hosts] = drawn(random, false);
    const auto per_host = static_cast<int>(std::ranges::count(hosts, 0));
    std::vector<ReceivedKeys> counted(hosts.size());
    for (const PlacedDocument& document : documents) {
      const std::vector<ReceivedKeys> of_span = received_keys(document, per_host);
      for (std::size_t i = 0; i < of_span.size(); ++i) {
        ReceivedKeys& to = counted[static_cast<std::size_t>(document.span.first) + i];
        to.inside += of_span[i].inside;
        to.across += of_span[i].across;
        across += of_span[i].across;
      }
    }
    EXPECT_EQ(received(key_exchange(micro_batch, GetParam(), hosts), hosts), counted);
  }
  EXPECT_GT(across, 1000);
}

// Each rank of a span of two hosts of four gets, of n keys on the other host, (hosts - 1) / degree * n at most.
TEST_P(AnyExchange, uses_all_ports_of_a_host_for_what_crosses) {
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const MicroBatch micro_batch = lay_out(std::vector<PlacedDocument>{{0, 1600, {0, 8}}}, 8, 1);
  const std::vector<ReceivedKeys> keys = received(key_exchange(micro_batch, GetParam(), hosts), hosts);
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(keys[rank].across, rank < 4 ? 200 : 100);
}

// Each rank's gradients of the keys in a block are its own number. Rows for gradients have the places of those for
// keys, from the step that makes them until they have gone back.
TEST_P(AnyExchange, brings_back_what_each_rank_makes_of_a_key_once) {
  std::mt19937_64 random(7);
  for (int test = 0; test < 200; ++test) {
    const auto [documents, micro_batch, hosts] = drawn(random, test % 3 == 0);
    const KeyExchange exchange = key_exchange(micro_batch, GetParam(), hosts);
    using Makers = std::map<Token, std::set<std::size_t>>;  // ranks that make a key's gradients
    std::vector<std::vector<std::pair<Token, std::set<std::size_t>>>> made;
    std::vector<Makers> sums(hosts.size());
    Replay replay(exchange, micro_batch);
    for (const SeenKeys& seen : exchange.seen)
      made.emplace_back(static_cast<std::size_t>(seen.rows), std::pair(kNothing, std::set<std::size_t>{}));
    for (std::size_t step = 0; step < std::max(exchange.rounds.size() + 1, exchange.returns.size()); ++step) {
      if (step > 0 && step <= exchange.rounds.size()) replay.run(step - 1);
      // While a step is computed, those of the one before are on their way.
      const auto before = made;
      if (step <= exchange.rounds.size())
        for (std::size_t rank = 0; rank < hosts.size(); ++rank)
          for (const QueryBlock& block : exchange.seen[rank].blocks[step])
            for (int i = block.k; i < block.k + block.kn; ++i) {
              const auto row = static_cast<std::size_t>(i);
              const Token key = replay.keys(rank, step).at(row);
              if (step == 0)
                sums[rank][key].insert(rank);
              else if (made[rank].at(row).first != key)
                made[rank][row] = {key, {rank}};
            }
      if (step > 0 && step <= exchange.returns.size())
        for (const KeyMessage& message : exchange.returns[step - 1])
          for (int i = 0; i < message.count; ++i) {
            const auto at = static_cast<std::size_t>(message.at + i), to = static_cast<std::size_t>(message.to);
            EXPECT_EQ(before[to][at], made[to][at]) << "gradients that are on their way are written over";
          }
      if (step >= exchange.returns.size()) continue;
      for (const KeyMessage& message : exchange.returns[step])
        for (int i = 0; i < message.count; ++i) {
          const auto from = static_cast<std::size_t>(message.from), row = static_cast<std::size_t>(message.row + i);
          const auto& [key, makers] =
              made[static_cast<std::size_t>(message.to)][static_cast<std::size_t>(message.at + i)];
          if (message.passed_on)
            EXPECT_EQ(made[from][row].first, key);
          else
            EXPECT_EQ(replay.shard(from)[row], key);
          auto& to = message.passed_on ? made[from][row].second : sums[from][key];
          for (const std::size_t maker : makers) EXPECT_TRUE(to.insert(maker).second) << "twice";
        }
    }
    for (std::size_t holder = 0; holder < hosts.size(); ++holder) {
      for (const KeyRows& rows : exchange.seen[holder].own)
        for (int i = 0; i < rows.count; ++i)
          sums[holder][replay.shard(holder)[static_cast<std::size_t>(rows.row + i)]].insert(holder);
      for (const Token& key : replay.shard(holder)) {
        std::set<std::size_t> seeing;
        for (std::size_t rank = 0; rank < hosts.size(); ++rank)
          for (const Piece& piece : micro_batch.shard[rank])
            if (piece.doc >= 0 && piece.doc == key.first && end_of(piece) > key.second) seeing.insert(rank);
        EXPECT_EQ(sums[holder][key], seeing);
      }
    }
  }
}

TEST_P(AnyExchange, of_whole_documents_is_nothing) {
  const MicroBatch micro_batch = lay_out(std::vector<PlacedDocument>{{0, 5, {}}, {1, 4, {1, 1}}}, 2, 4);
  const KeyExchange exchange = key_exchange(micro_batch, GetParam());
  EXPECT_THAT(exchange.rounds, IsEmpty());
  for (const SeenKeys& seen : exchange.seen) {
    EXPECT_EQ(seen.rows, 0);
    EXPECT_THAT(seen.own, IsEmpty());
  }
  EXPECT_THAT(exchange.seen[0].blocks, ElementsAre(ElementsAre(QueryBlock{.q = 0, .qn = 5, .k = 0, .kn = 5})));
}

// Ring ranks from which a rank gets keys, and the first position and number of them.
std::map<int, std::vector<std::pair<int, int>>> keys_from_others(const PlacedDocument& document, int rank) {
  std::map<int, std::vector<std::pair<int, int>>> others;
  for (const auto& round : key_exchange(lay_out({&document, 1}, document.span.degree, 1), KeyPassing::gather).rounds)
    for (const KeyMessage& message : round)
      if (message.to == rank) others[message.from].emplace_back(static_cast<int>(message.at), message.count);
  return others;
}

TEST(KeyExchange, of_a_document_brings_all_of_a_later_place_and_the_front_chunk_of_an_earlier_one) {
  const PlacedDocument document{.doc = 0, .tokens = 80, .span = {0, 4}};
  EXPECT_THAT(keys_from_others(document, 1).at(2), ElementsAre(std::pair(20, 10), std::pair(50, 10)));
  EXPECT_THAT(keys_from_others(document, 2).at(1), ElementsAre(std::pair(10, 10)));
  for (int degree = 2; degree <= 8; ++degree) {
    const i64 tokens = 10 * degree;
    int messages = 0;
    i64 moved = 0;
    for (int rank = 0; rank < degree; ++rank)
      for (const auto& [holder, runs] : keys_from_others({.doc = 0, .tokens = tokens, .span = {0, degree}}, rank)) {
        ++messages;
        for (const auto& [first, count] : runs) moved += count;
      }
    EXPECT_EQ(messages, degree * (degree - 1));
    EXPECT_EQ(4 * moved, 3 * (degree - 1) * tokens);
  }
}

// A rank gets all keys of a later rank and the front chunk of an earlier one's: in all degree * (degree - 1) messages
// with 3/4 * (degree - 1) of the document, of which the first rank of the span gets (degree - 1) / degree.
TEST(KeyExchange, in_steps_brings_the_keys_of_the_rank_so_many_places_before) {
  for (int degree = 2; degree <= 8; ++degree) {
    const PlacedDocument document{.doc = 0, .tokens = 20 * degree, .span = {0, degree}};
    const KeyExchange exchange = key_exchange(lay_out({&document, 1}, degree, 1), KeyPassing::ring);
    ASSERT_EQ(std::ssize(exchange.rounds), degree - 1);
    std::set<std::pair<int, int>> pairs;
    i64 moved = 0, to_first = 0;
    for (int step = 1; step < degree; ++step)
      for (const KeyMessage& message : exchange.rounds[static_cast<std::size_t>(step) - 1]) {
        EXPECT_EQ(message.from, (message.to - step + degree) % degree);
        pairs.emplace(message.from, message.to);
        moved += message.count;
        to_first += message.to == 0 ? message.count : 0;
      }
    EXPECT_EQ(std::ssize(pairs), degree * (degree - 1));
    EXPECT_EQ(4 * moved, 3 * (degree - 1) * document.tokens);
    EXPECT_EQ(degree * to_first, (degree - 1) * document.tokens);
    for (const SeenKeys& seen : exchange.seen) EXPECT_LE(seen.rows, 2 * document.tokens / degree) << "two steps' keys";
  }
}

// A span of two hosts of four: the first host gets 4 * 200 keys, in the four rounds before the step that has the first
// of them; each of its ranks a quarter of its own in each round.
TEST(KeyExchange, in_steps_spreads_what_crosses_over_the_steps_of_a_host) {
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const MicroBatch micro_batch = lay_out(std::vector<PlacedDocument>{{0, 1600, {0, 8}}}, 8, 1);
  const KeyExchange exchange = key_exchange(micro_batch, KeyPassing::ring, hosts);
  ASSERT_EQ(exchange.rounds.size(), 7u);
  for (std::size_t round = 0; round < 7; ++round) {
    std::map<int, i64> across;
    for (const KeyMessage& message : exchange.rounds[round])
      if (hosts[static_cast<std::size_t>(message.from)] != hosts[static_cast<std::size_t>(message.to)])
        across[message.to] += message.count;
    for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(across[rank], round > 3 ? 0 : rank < 4 ? 50 : 25);
  }
  for (const SeenKeys& seen : exchange.seen) EXPECT_LE(seen.rows, 4 * 200) << "two steps' keys, and what crosses";
}

// Methods: step 0 causal on a rank's own chunks; step t <= r: all queries against the front half of what comes;
// t > r: the back half of the queries against all. So each step has equal work on all ranks.
TEST(KeyExchange, in_steps_has_equal_work_on_all_ranks_of_a_step) {
  const PlacedDocument document{.doc = 0, .tokens = 32, .span = {0, 4}};
  const KeyExchange exchange = key_exchange(lay_out({&document, 1}, 4, 1), KeyPassing::ring);
  for (int rank = 0; rank < 4; ++rank) {
    const auto& blocks = exchange.seen[static_cast<std::size_t>(rank)].blocks;
    ASSERT_EQ(blocks.size(), 4u);
    for (int step = 1; step < 4; ++step) {
      ASSERT_EQ(blocks[static_cast<std::size_t>(step)].size(), 1u);
      const QueryBlock& block = blocks[static_cast<std::size_t>(step)][0];
      EXPECT_FALSE(block.causal);
      EXPECT_EQ(std::pair(block.qn, block.kn), step <= rank ? std::pair(8, 4) : std::pair(4, 8))
          << rank << ", " << step;
    }
    double own = 0;
    for (const QueryBlock& block : blocks[0]) own += attention_pairs(block);
    EXPECT_EQ(own, 4 * 5 / 2 + 4 * 4 + 4 * 5 / 2);
  }
}

TEST(KeyExchange, of_a_document_with_fewer_tokens_than_chunks_is_less) {
  // Only the third and the last of six chunks have a token, on places 2 and 0.
  const PlacedDocument document{.doc = 0, .tokens = 2, .span = {0, 3}};
  EXPECT_THAT(keys_from_others(document, 0).at(2), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(keys_from_others(document, 2), IsEmpty());
  EXPECT_THAT(keys_from_others(document, 1), IsEmpty());
}

std::string error_of(const MicroBatch& micro_batch) {
  try {
    key_exchange(micro_batch, KeyPassing::gather);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(KeyExchange, of_parts_that_are_nowhere_is_a_bug) {
  EXPECT_THAT(error_of({{2, 2}, {{{7, 2, 2, 1}}, {{-1, 0, 2, 1}}}}),
              HasSubstr("document 7: ring rank 0 needs 4 keys, and 2 are there"));
  EXPECT_THAT(error_of({{2}, {{{7, 0, 2, 2}}}}), HasSubstr("a piece of document 7 with stride 2"));
}

TEST(KeyExchange, needs_the_host_of_each_ring_rank) {
  EXPECT_THROW(key_exchange({{2, 2}, {{{7, 0, 2, 1}}, {{-1, 0, 2, 1}}}}, KeyPassing::ring, std::vector<int>{0}),
               InternalError);
}

}  // namespace
}  // namespace switchyard::batch
