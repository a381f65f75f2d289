#include "kernels/element_works.hpp"

#include "kernels/activation.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/element_tensors.hpp"
#include "kernels/rope.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

// Works are computed on the host here, as a GPU's threads do it: each element, in an order that nobody promises.
at::Tensor on_host(at::IntArrayRef shape, at::ScalarType type, unsigned seed, i64 spare) {
  return random(shape, type, seed, spare).to(at::kCPU);
}

template <class Work>
void on_host(const Work& work) {
  for (i64 i = work.count() - 1; i >= 0; --i) work(i);
}

TEST(ElementWorks, RotateEachPairOfEachHeadByItsPosition) {
  const i64 tokens = 11, heads = 3, dim = 8;
  for (const auto type : kTypes)
    for (const bool inverse : {false, true}) {
      const at::ScalarType state = state_of(type);
      const at::Tensor x = on_host({tokens, heads * dim}, type, 1, 6), cos = on_host({20, dim / 2}, state, 2, 0),
                       sin = on_host({20, dim / 2}, state, 3, 0),
                       positions = integers({0, 19, 3, 3, 7, 1, 0, 2, 18, 5, 4}).cpu();
      at::Tensor expected = x.new_empty(x.sizes()), y = on_host({tokens, heads * dim}, type, 4, 10);
      rope(expected, x, cos, sin, positions, dim, inverse);
      with_element(y, [&]<class T>() { on_host(rope_work<T>(y, x, cos, sin, positions, dim, inverse)); });
      expect_close(y, values(expected), tolerance_of(type), "y");
      at::Tensor in_place = x.clone();
      with_element(y, [&]<class T>() { on_host(rope_work<T>(in_place, in_place, cos, sin, positions, dim, inverse)); });
      expect_same_bits(in_place, y, "in place");
    }
}

TEST(ElementWorks, AreSwigluAndItsGradients) {
  const i64 rows = 7, width = 5;
  for (const auto type : kTypes) {
    const at::Tensor gate = on_host({rows, width}, type, 1, 4), up = on_host({rows, width}, type, 2, 2),
                     dh = on_host({rows, width}, type, 3, 0);
    at::Tensor expected[3], got[3];
    for (int i = 0; i < 3; ++i) {
      expected[i] = gate.new_empty(gate.sizes());
      got[i] = on_host({rows, width}, type, static_cast<unsigned>(4 + i), 2 * i);
    }
    swiglu(expected[0], gate, up);
    swiglu_dx(expected[1], expected[2], dh, gate, up);
    with_element(gate, [&]<class T>() {
      on_host(swiglu_work<T>(got[0], gate, up));
      on_host(swiglu_gradient_work<T>(got[1], got[2], dh, gate, up));
    });
    for (int i = 0; i < 3; ++i) expect_close(got[i], values(expected[i]), tolerance_of(type), "h, dgate, dup");
    at::Tensor dgate = gate.clone(), dup = up.clone();
    with_element(gate, [&]<class T>() { on_host(swiglu_gradient_work<T>(dgate, dup, dh, dgate, dup)); });
    expect_same_bits(dgate, got[1].contiguous(), "in place");
  }
}

TEST(ElementWorks, TurnLogitsOfAPartOfTheVocabularyIntoGradients) {
  const i64 rows = 6, width = 9, first = 20;
  for (const auto type : kTypes) {
    const at::ScalarType state = state_of(type);
    const at::Tensor logits = on_host({rows, width}, type, 1, 3), weights = on_host({rows}, state, 2, 0),
                     labels = integers({20, 28, 3, -1, 24, 29}).cpu();
    weights.select(0, 4).fill_(0);
    at::Tensor top = on_host({rows}, state, 3, 0), sums = on_host({2, rows}, state, 4, 0),
               loss = on_host({rows}, state, 5, 0), expected = logits.clone();
    xent_max(top, logits);
    xent_sums(sums, logits, top, labels, first);
    xent_grad(expected, loss, top, sums, labels, weights, first);
    with_element(logits, [&]<class T>() { on_host(cross_entropy_work<T>(logits, top, sums, labels, weights, first)); });
    expect_close(logits, values(expected), tolerance_of(type), "gradient");
  }
}

TEST(ElementWorks, RoundBf16AsTorchDoes) {
  const at::Tensor x = on_host({1, 1000}, at::kFloat, 1, 0), rounded = x.to(at::kBFloat16);
  for (i64 i = 0; i < 1000; ++i) {
    Bf16 y{};
    store(y, x.const_data_ptr<float>()[i]);
    EXPECT_EQ(y.bits, rounded.const_data_ptr<at::BFloat16>()[i].x);
    EXPECT_EQ(wide(y), static_cast<float>(rounded.const_data_ptr<at::BFloat16>()[i]));
  }
}

TEST(ElementWorks, RunWhereThisBuildHasKernelsOfThem) {
  const at::Tensor x = on_host({2, 2}, at::kFloat, 1, 0);
  EXPECT_FALSE(has_element_kernels({&x})) << "a tensor of the CPU";
}

}  // namespace
}  // namespace switchyard::kernels
