#include "batch/ring_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <utility>

#include "base/errors.hpp"
#include "batch/validate.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kMaxDegree = 6, kMaxTokens = 30;

// All documents of few tokens, shorter and longer than their chunks are many, both ways round.
std::vector<PlacedDocument> small_documents() {
  std::vector<PlacedDocument> documents;
  for (int degree = 1; degree <= kMaxDegree; ++degree)
    for (i64 tokens = 1; tokens <= kMaxTokens; ++tokens)
      for (const bool mirrored : {false, true})
        documents.push_back({.doc = 3, .tokens = tokens, .span = {.first = 1, .degree = degree, .mirrored = mirrored}});
  return documents;
}

std::vector<int> positions(const std::vector<Piece>& pieces) {
  std::vector<int> all;
  for (const Piece& piece : pieces)
    for (int i = 0; i < piece.count; ++i) all.push_back(piece.first + i * piece.stride);
  return all;
}

i64 pairs_on(const PlacedDocument& document, int rank) {
  i64 pairs = 0;
  for (const Piece& piece : pieces_on(document, rank)) pairs += attention_pairs(piece);
  return pairs;
}

TEST(PiecesOn, four_ranks_are_two_chunks_each_with_equal_pairs) {
  const PlacedDocument document{.doc = 0, .tokens = 32, .span = {0, 4}};
  EXPECT_THAT(pieces_on(document, 0), ElementsAre(Piece{0, 0, 4, 1}, Piece{0, 28, 4, 1}));
  EXPECT_THAT(pieces_on(document, 2), ElementsAre(Piece{0, 8, 4, 1}, Piece{0, 20, 4, 1}));
  EXPECT_THAT(pieces_on(document, 3), ElementsAre(Piece{0, 12, 8, 1}));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(pairs_on(document, rank), 132);
}

TEST(LayOut, documents_of_a_stream_are_padded_to_equal_parts) {
  const auto tokens = [](i64 length) {
    const PlacedDocument document{.doc = 0, .tokens = length, .span = {0, 4}};
    return lay_out(std::span(&document, 1), 4, /*multiple=*/1, /*document_multiple=*/2).T;
  };
  EXPECT_THAT(tokens(3), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(tokens(8), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(tokens(9), ElementsAre(4, 4, 4, 4));
}

TEST(PiecesOn, a_mirrored_span_begins_at_its_last_rank) {
  const PlacedDocument plain{.doc = 0, .tokens = 17, .span = {2, 3}},
      mirrored{.doc = 0, .tokens = 17, .span = {2, 3, true}};
  for (int rank = 2; rank < 5; ++rank) EXPECT_EQ(pieces_on(plain, rank), pieces_on(mirrored, 6 - rank));
  EXPECT_EQ(pieces_on(plain, 2).front().first, 0);
}

TEST(PiecesOn, each_token_is_on_one_rank_of_the_span_and_chunks_are_level) {
  for (const PlacedDocument& document : small_documents()) {
    const auto& [doc, tokens, span] = document;
    std::vector<int> all;
    for (int rank = 0; rank <= span.first + span.degree; ++rank) {
      const std::vector<Piece> pieces = pieces_on(document, rank);
      const std::vector<int> own = positions(pieces);
      all.insert(all.end(), own.begin(), own.end());
      EXPECT_TRUE(std::ranges::is_sorted(own));
      EXPECT_LE(pieces.size(), 2u);
      EXPECT_TRUE(pieces.size() < 2 || end_of(pieces[0]) < pieces[1].first);
      const bool inside = rank >= span.first && rank < span.first + span.degree;
      const i64 share = inside ? tokens / span.degree : 0;
      EXPECT_GE(std::ssize(own), inside ? share - 1 : 0);
      EXPECT_LE(std::ssize(own), inside ? share + 2 : 0);
      for (const Piece& piece : pieces) EXPECT_EQ(piece.doc, doc);
    }
    std::ranges::sort(all);
    std::vector<int> expected(static_cast<std::size_t>(tokens));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << tokens << " tokens, degree " << span.degree;
  }
}

TEST(MaskOf, lets_each_query_see_the_keys_up_to_its_own_and_no_other) {
  for (const PlacedDocument& document : small_documents()) {
    std::set<std::pair<int, int>> seen;
    int twice = 0;
    const int end = document.span.first + document.span.degree;
    for (int rank = 0; rank < end; ++rank)
      for (int holder = 0; holder < end; ++holder)
        for (const Piece& queries : pieces_on(document, rank))
          for (const Piece& keys : pieces_on(document, holder)) {
            const Mask mask = mask_of(queries, keys);
            if (mask == Mask::nothing) continue;
            EXPECT_TRUE(mask == Mask::full || rank == holder);
            for (const int query : positions({queries}))
              for (const int key : positions({keys}))
                if (mask == Mask::full || key <= query) twice += seen.insert({query, key}).second ? 0 : 1;
          }
    for (const auto& [query, key] : seen) EXPECT_LE(key, query);
    EXPECT_EQ(std::ssize(seen), document.tokens * (document.tokens + 1) / 2);
    EXPECT_EQ(twice, 0);
  }
}

// Keys on `holder` that some query on `rank` sees, token by token.
std::set<int> seen_keys(const PlacedDocument& document, int rank, int holder) {
  std::set<int> keys;
  for (const int query : positions(pieces_on(document, rank)))
    for (const int key : positions(pieces_on(document, holder)))
      if (key <= query) keys.insert(key);
  return keys;
}

TEST(ReceivedKeys, of_the_first_place_are_all_others_and_of_the_last_half_of_that) {
  // A Ulysses degree of 2 leaves 4 of 8 key/value heads of 128 features: 2 KiB in bf16 for keys and values of a token.
  constexpr i64 kBytes = 2 * 4 * 128 * 2, kMiB = 1 << 20;
  const auto received = received_keys({.doc = 0, .tokens = 8192, .span = {0, 4}}, 4);
  std::vector<i64> MiB;
  for (const ReceivedKeys& keys : received) {
    EXPECT_EQ(keys.across, 0);
    MiB.push_back(keys.inside * kBytes / kMiB);
  }
  EXPECT_THAT(MiB, ElementsAre(12, 10, 8, 6));
  auto mirrored = received_keys({.doc = 0, .tokens = 8192, .span = {4, 4, true}}, 4);
  std::ranges::reverse(mirrored);
  EXPECT_EQ(mirrored, received);
}

TEST(ReceivedKeys, are_what_each_rank_needs_and_cross_to_each_host_once) {
  for (const PlacedDocument& document : small_documents())
    for (const int per_host : {1, 2, 3, 8}) {
      const auto [first, degree, mirrored] = document.span;
      const std::vector<ReceivedKeys> received = received_keys(document, per_host);
      ASSERT_EQ(std::ssize(received), degree);
      std::set<std::pair<int, int>> crossing;  // (host, key)
      i64 across = 0;
      for (int rank = first; rank < first + degree; ++rank) {
        i64 needed = 0;
        for (int holder = first; holder < first + degree; ++holder) {
          if (holder == rank) continue;
          const std::set<int> keys = seen_keys(document, rank, holder);
          needed += std::ssize(keys);
          if (rank / per_host != holder / per_host)
            for (const int key : keys) crossing.emplace(rank / per_host, key);
        }
        const ReceivedKeys& own = received[static_cast<std::size_t>(rank - first)];
        EXPECT_EQ(own.inside + own.across, needed);
        EXPECT_GE(own.inside, 0);
        across += own.across;
      }
      EXPECT_EQ(across, std::ssize(crossing)) << document.tokens << " tokens, degree " << degree << ", " << per_host;
    }
}

TEST(ReceivedKeys, cross_hosts_on_all_their_ports_equally) {
  // Two hosts of four: the first needs all of the second, which needs the front half of the first.
  const auto received = received_keys({.doc = 0, .tokens = 1600, .span = {0, 8}}, 4);
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(received[rank].across, rank < 4 ? 200 : 100);
}

TEST(LayOut, is_a_valid_micro_batch_whose_ranks_have_unlike_numbers_of_tokens) {
  const std::vector<i64> lengths{9, 4, 5};
  const std::vector<PlacedDocument> documents{{0, 9, {0, 2}}, {1, 4, {0, 2}}, {2, 5, {1, 1}}};
  const MicroBatch micro_batch = lay_out(documents, 3, 2);
  EXPECT_THAT(micro_batch.T, ElementsAre(8, 12, 2));
  EXPECT_THAT(micro_batch.shard[0], ElementsAre(Piece{0, 0, 2, 1}, Piece{0, 6, 3, 1}, Piece{1, 0, 1, 1},
                                                Piece{1, 3, 1, 1}, Piece{-1, 0, 1, 1}));
  EXPECT_THAT(micro_batch.shard[1],
              ElementsAre(Piece{0, 2, 4, 1}, Piece{1, 1, 2, 1}, Piece{2, 0, 5, 1}, Piece{-1, 0, 1, 1}));
  EXPECT_THAT(micro_batch.shard[2], ElementsAre(Piece{-1, 0, 2, 1})) << "collectives need some tokens of each rank";
  const BucketSpec bucket{.max_length = 20, .multiple = 2, .rings = {{.ranks = 3}}};
  validate({.valid_tokens = 15, .phases = {{.replica = {{micro_batch}}}}}, lengths, {&bucket, 1});
  EXPECT_EQ(attention_pairs(micro_batch), 45 + 10 + 15);
}

TEST(LayOut, a_document_outside_the_ring_is_a_bug) {
  for (const Span& span : {Span{2, 2}, Span{-1, 1}, Span{0, 0}}) try {
      lay_out(std::vector<PlacedDocument>{{7, 9, span}}, 3, 1);
      FAIL();
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), HasSubstr("document 7 lies on ring ranks"));
    }
}

}  // namespace
}  // namespace switchyard::batch
