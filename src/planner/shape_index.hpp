// Shapes in the groups that have bounds in common, the same for every range of lengths.
#pragma once

#include <span>
#include <vector>

#include "planner/space.hpp"

namespace switchyard::planner {

/// Degrees and meshes are numbered in the order of their first shapes.
class ShapeIndex {
 public:
  static constexpr int kZeros = 3;  // stages of ZeRO of a placement: 1 to 3

  /// shapes: those of equal placement next to each other, and those of equal dp, pp and mesh, too; they outlive the
  /// index. by_ranks: all meshes of as many ranks have their first bound in common.
  ShapeIndex(std::span<const Shape> shapes, bool by_ranks);

  /// begin ... end - 1.
  struct Span {
    int begin = 0, end = 0;
    int size() const { return end - begin; }
  };
  /// Shapes with the same dp, pp and mesh, or, by ranks, number of ranks.
  struct Degrees {
    Span shapes, meshes;
  };
  /// Those of them with one mesh.
  struct Mesh {
    Span shapes, families;
  };
  /// A way to lay out the layers on stages (chunks, their path and layers for the head), which is all that times
  /// without order and schedule depend on: a shape that has it, and its number among those of the family.
  struct Layers {
    int shape = 0, of_family = 0;
  };
  /// Codes of a mesh that all split gradients, or none: without recomputation and transfers all take the same.
  struct Family {
    Span codes;
    std::vector<int> layers{};  // a shape for each layout
  };
  /// A shape, and the number of its layout of layers among those of its code.
  struct Member {
    int shape = 0, layers = 0;
  };
  /// Those of a mesh with the same zero and code().
  struct Code {
    std::vector<Member> members;
    std::vector<Layers> layers;
  };

  int size() const { return static_cast<int>(shapes_.size()); }
  int codes() const { return static_cast<int>(codes_.size()); }
  const Shape& shape(int number) const { return shapes_[static_cast<size_t>(number)]; }
  const std::vector<Degrees>& degrees() const { return degrees_; }
  const Degrees& degrees(int number) const { return degrees_[static_cast<size_t>(number)]; }
  const Mesh& mesh(int number) const { return meshes_[static_cast<size_t>(number)]; }
  const Family& family(int number) const { return families_[static_cast<size_t>(number)]; }
  const Code& code(int number) const { return codes_[static_cast<size_t>(number)]; }
  /// Number of the placement of a shape with a stage of ZeRO; numbers are less than placements().
  int placement(int shape, int zero) const { return placement_[static_cast<size_t>(shape)] + zero - 1; }
  int placements() const { return shapes_.empty() ? 0 : placement_.back() + kZeros; }

 private:
  void add_family(Span shapes, bool splits_gradients);

  std::span<const Shape> shapes_;
  std::vector<int> placement_;  // by shape, with ZeRO-1
  std::vector<Degrees> degrees_;
  std::vector<Mesh> meshes_;
  std::vector<Family> families_;
  std::vector<Code> codes_;
};

}  // namespace switchyard::planner
