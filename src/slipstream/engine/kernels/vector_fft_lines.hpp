// FFTs of long lines on a CPU: each fills all lanes of vectors by itself.
//
// A line of n points is a matrix of `height` rows, each of `width` points one behind the other (Bailey 1990,
// "FFTs in external or hierarchical memory"). First the columns are transformed, one in each lane, turned, and
// left in panels: the modes of lane_count columns, one mode behind the other. Then the rows are, again one in
// each lane, so that their modes are neighbours in the result. A function transforms whole tiles
// (`vector_fft_tile.hpp`), so this header compiles quickly. Threads share the panels, and then the rows. No lane
// depends on others, so the bits of a line depend on its length alone, whatever the width of vectors. The last
// panel and the last rows begin early enough to be whole: some numbers are computed, and stored, twice.
//
// Constants: SIGN; HALVES, if the lines are 2 n real numbers taken as n complex ones; REALS, if they are real
// otherwise; CHIRP, if the points are fewer than n, and the transform is a convolution (Bluestein 1970).
#pragma once
#include "vector_fft.hpp"

#ifndef SLIPSTREAM_GPU
#include <omp.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

// Columns that share turns: the first one is `column`, and the others are behind it, or, if mirrored, before it.
// They are as many as a vector of 64 bytes has lanes, on any processor.
struct Group {
  Index column, is_mirrored;
};
constexpr int wide = 64 / sizeof(Real), parts = wide / lane_count;
// What Python prepares for a length. The turn of mode k of column j, exp(-2 pi i k j / n), is that of its group's
// first column, `of_groups` (groups, height), times that of its place in the group, `of_places` (height, 2,
// wide), by real and imaginary parts. The turns between the modes of halves and those of a line are products
// too: `half_of_rows` and `half_of_columns` of the matrix that has those modes.
struct Line {
  Index points, groups, height, width;
  const Plan *of_column, *of_row;
  const Group* group;
  const Real* of_places;
  const Complex *of_groups, *half_of_rows, *half_of_columns, *chirp, *spectrum;
};
// As many columns as lanes, a part of a group.
struct Panel {
  Index column;
  bool is_mirrored;
  const Real* of_places;
  const Complex* of_group;
  INLINE Panel(const Line& line, Index number) {
    const Group& group = line.group[number / parts];
    const Index place = number % parts * lane_count;
    is_mirrored = group.is_mirrored;
    column = group.column + (is_mirrored ? -place : place);
    of_places = line.of_places + place;
    of_group = line.of_groups + number / parts * line.height;
  }
  // The turns of mode k.
  INLINE Values turns(Index k) const {
    const Real* at = of_places + 2 * wide * k;
    Values v = {load(at, Vector{}), load(at + wide, Vector{})};
    if (is_mirrored) v = conjugate(v);
    return turn(v, of_group[k]);
  }
};
INLINE Index panels_of(const Line& line) { return line.groups * parts; }

template <int... I>
INLINE Vector reversed(Vector a, Integers<I...>) {
  return __builtin_shufflevector(a, a, (lane_count - 1 - I)...);
}
INLINE Values reversed(Values a) { return {reversed(a.re, AllLanes{}), reversed(a.im, AllLanes{})}; }
INLINE Values all_lanes(Complex a) { return {all_lanes(a.re, Vector{}), all_lanes(a.im, Vector{})}; }
// Turned by w, or for Sign > 0 by its conjugate.
template <int Sign>
INLINE Values turn_by(Values a, Values w) {
  if constexpr (Sign < 0) return {fused(a.re, w.re, -(a.im * w.im)), fused(a.re, w.im, a.im * w.re)};
  else return {fused(a.re, w.re, a.im * w.im), fused(a.im, w.re, -(a.re * w.im))};
}

// `count` numbers of a line, and zeros behind them: real ones, or complex ones of which `stored` are in memory,
// and the others are conjugates of these.
struct Numbers {
  Real* at;
  Index count, stored;
  bool is_real;
  INLINE Numbers(Real* at, Index count, bool is_real, bool is_half)
      : at(at), count(count), stored(is_half ? count / 2 + 1 : count), is_real(is_real) {}
  INLINE const Complex* modes() const { return (const Complex*)at; }
  INLINE Complex one(Index i) const {
    if (i >= count) return Complex{};
    if (is_real) return {at[i], 0};
    if (stored == count) return modes()[i];
    // The imaginary parts of modes 0 and count / 2, which no real numbers have, are left out.
    if (i == 0 || 2 * i == count) return {modes()[i].re, 0};
    return i < stored ? modes()[i] : conjugate(modes()[count - i]);
  }
  // As many numbers as lanes, from number i on.
  INLINE Values load(Index i) const {
    const Index end = i + lane_count;
    if (i >= count) return Values{};
    if (is_real) {
      if (end <= count) return {::load(at + i, Vector{}), Vector{}};
    } else if (stored == count) {
      if (end <= count) return load_in_order(modes() + i);
    } else {
      if (i > 0 && 2 * (end - 1) < count) return load_in_order(modes() + i);
      if (2 * i > count && end <= count) return conjugate(reversed(load_in_order(modes() + (count - end + 1))));
    }
    return load_singly(i);
  }
  __attribute__((noinline)) Values load_singly(Index i) const {
    Values v{};
    for (int lane = 0; lane < lane_count; ++lane) {
      const Complex x = one(i + lane);
      v.re[lane] = x.re;
      v.im[lane] = x.im;
    }
    return v;
  }
  INLINE void store(Index i, Values v) const {
    if (i + lane_count > stored) {
      if (i < stored) store_singly(i, v);
    } else if (is_real) {
      ::store(at + i, v.re);
    } else {
      store_in_order((Complex*)at + i, v);
    }
  }
  __attribute__((noinline)) void store_singly(Index i, Values v) const {
    for (Index lane = 0; i + lane < stored; ++lane)
      if (is_real) at[i + lane] = v.re[lane];
      else ((Complex*)at)[i + lane] = {v.re[lane], v.im[lane]};
  }
};

// Transform the columns of panel `number`, which lie in a tile, turn their modes and leave them in memory.
template <int Sign>
INLINE void transform_panel(const Line& line, TileTransform transform, Index number, Values* tile, Values* other,
                            Values* panels) {
  const Panel panel(line, number);
  const Index n = line.height;
  Values* to = panels + number * n;
  transform(line.of_column, tile, other);
  for (Index k = 0; k < n; ++k) to[k] = turn_by<Sign>(other[k], panel.turns(k));
}

// Transform as many rows as lanes: row first + lane, or first - lane in the direction -1, where row 0 is also the
// one behind the last. The modes come to `other`.
INLINE void transform_rows(const Line& line, TileTransform transform, const Values* panels, Index first,
                           int direction, Values* tile, Values* other) {
  const Index n = line.height;
  for (Index number = 0; number < panels_of(line); ++number) {
    const Values* panel = panels + number * n;
    Vector re[lane_count], im[lane_count];
    UNROLL for (int i = 0; i < lane_count; ++i) {
      Index row = first + direction * i;
      if (direction < 0 && row == n) row = 0;
      re[i] = panel[row].re;
      im[i] = panel[row].im;
    }
    transpose(re);
    transpose(im);
    const Panel from(line, number);
    const Index step = from.is_mirrored ? -1 : 1;
    Values* to = tile + from.column;
    UNROLL for (int i = 0; i < lane_count; ++i) to[i * step] = {re[i], im[i]};
  }
  transform(line.of_row, tile, other);
}

// Memory of a thread for lines, which ends with it.
INLINE Values* line_memory_of_thread(Index count) {
  static thread_local ThreadMemory memory;
  if (memory.size < count) {
    free(memory.values);
    constexpr Index page = 1 << 21;  // large ones: fewer of them are looked up
    const Index bytes = (count * Index(sizeof(Values)) + page - 1) / page * page;
    memory.values = (Values*)aligned_alloc(page, bytes);
    memory.size = count;
#ifdef __linux__
    madvise(memory.values, bytes, MADV_HUGEPAGE);
#endif
  }
  return memory.values;
}

INLINE Index first_of_block(Index block, Index rows) {
  return block * lane_count < rows - lane_count ? block * lane_count : rows - lane_count;
}
INLINE Index blocks_of(Index rows) { return (rows + lane_count - 1) / lane_count; }
INLINE Index line_tile_size(const Line& line) {
  return (line.height > line.width ? line.height : line.width) + lane_count;
}

// Transform a line; `load(i)` returns numbers from i on, and `store(k, values)` takes modes from k on.
template <int Sign, class Load, class Store>
INLINE void transform_line(const Line& line, TileTransform transform, Values* panels, const Load& load,
                           const Store& store) {
  const Index height = line.height, width = line.width, size = line_tile_size(line);
  FOR_BLOCKS(number, panels_of(line)) {
    Values *tile = tiles_of_thread(size), *other = tile + size;
    const Index column = Panel(line, number).column;
    for (Index i = 0; i < height; ++i) tile[i] = load(i * width + column);
    transform_panel<Sign>(line, transform, number, tile, other, panels);
  }
  FOR_BLOCKS(block, blocks_of(height)) {
    Values *tile = tiles_of_thread(size), *other = tile + size;
    const Index first = first_of_block(block, height);
    transform_rows(line, transform, panels, first, 1, tile, other);
    for (Index k = 0; k < width; ++k) store(first + k * height, other[k]);
  }
}

#if HALVES
// From 2 n real numbers to n + 1 modes. Mode k and mode n - k come from two rows of lanes, the second one
// backwards.
INLINE void modes_of_real_line(const Line& line, TileTransform transform, Values* panels, Real scale,
                               const Real* source, Complex* target) {
  const Index height = line.height, width = line.width, size = line_tile_size(line);
  const Index n = height * width;
  const Complex* points = (const Complex*)source;
  FOR_BLOCKS(number, panels_of(line)) {
    const Complex* from = points + Panel(line, number).column;
    Values *tile = tiles_of_thread(size), *other = tile + size;
    for (Index i = 0; i < height; ++i) {
      const Complex* row = from + i * width;
      prefetch_after(row);
      tile[i] = scale * load_in_order(row);
    }
    transform_panel<-1>(line, transform, number, tile, other, panels);
  }
  FOR_BLOCKS(block, blocks_of(height / 2 + 1)) {
    const Index first = first_of_block(block, height / 2 + 1);
    Values *work = tiles_of_thread(2 * size), *up = work + size, *down = up + size;
    transform_rows(line, transform, panels, first, 1, work, up);
    transform_rows(line, transform, panels, height - first, -1, work, down);
    // Row 0 is the reverse of itself, by one mode further.
    if (first == 0)
      for (Index k = 0; k < width; ++k) {
        const Values& own = up[k + 1 < width ? k + 1 : 0];
        down[k].re[0] = own.re[0];
        down[k].im[0] = own.im[0];
      }
    const Values of_columns = load_in_order(line.half_of_columns + first);
    for (Index k = 0; k < width; ++k) {
      const Values a = up[k], b = conjugate(down[width - 1 - k]);
      const Values even = Real(0.5) * (a + b);
      const Values odd = turn_by<-1>(Real(0.5) * (a - b), turn(of_columns, line.half_of_rows[k]));
      Complex* to = target + (first + k * height);
      store_in_order(to, even - times_i(odd));
      Complex* back = target + (n - first - k * height - (lane_count - 1));
      store_in_order(back, reversed(conjugate(even + times_i(odd))));
    }
  }
}

// From n + 1 modes to 2 n real numbers. Panels are pairs, the second one mirrored.
INLINE void real_line_of_modes(const Line& line, TileTransform transform, Values* panels, Real scale,
                               const Complex* source, Real* target) {
  const Index height = line.height, width = line.width, size = line_tile_size(line);
  const Index n = height * width, pairs = panels_of(line) / 2;
  FOR_BLOCKS(number, pairs) {
    Values *up = tiles_of_thread(2 * size), *down = up + size, *other = down + size;
    const Index column = Panel(line, number).column;
    const Values of_columns = load_in_order(line.half_of_columns + column);
    for (Index i = 0; i < height; ++i) {
      const Complex* from = source + (column + i * width);
      const Complex* back = source + (n - column - i * width - (lane_count - 1));
      Values a = scale * load_in_order(from), b = scale * conjugate(reversed(load_in_order(back)));
      // The imaginary parts of modes 0 and n, which no real numbers have, are left out.
      if (column + i == 0) a.im[0] = b.im[0] = 0;
      const Values even = a + b, odd = turn_by<1>(a - b, turn(of_columns, line.half_of_rows[i]));
      up[i] = even + times_i(odd);
      down[height - 1 - i] = conjugate(even - times_i(odd));
    }
    transform_panel<1>(line, transform, number, up, other, panels);
    transform_panel<1>(line, transform, number + pairs, down, other, panels);
  }
  Complex* points = (Complex*)target;
  FOR_BLOCKS(block, blocks_of(height)) {
    Values *tile = tiles_of_thread(size), *other = tile + size;
    const Index first = first_of_block(block, height);
    transform_rows(line, transform, panels, first, 1, tile, other);
    for (Index k = 0; k < width; ++k) store_in_order(points + (first + k * height), other[k]);
  }
}
#endif

#if CHIRP
// Any number of points, as a convolution by two transforms of n, with memory `between` for as many numbers.
INLINE void transform_by_chirp(const Line& line, TileTransform transform, Values* panels, Complex* between,
                               Real scale, const Numbers& from, const Numbers& to) {
  transform_line<-1>(
      line, transform, panels,
      [&](Index i) {
        const Values v = scale * from.load(i);
        return i < line.points ? turn_by<SIGN>(v, load_in_order(line.chirp + i)) : v;
      },
      [&](Index k, Values v) {
        store_in_order(between + k, conjugate(turn_by<SIGN>(v, load_in_order(line.spectrum + k))));
      });
  transform_line<-1>(
      line, transform, panels, [&](Index i) { return load_in_order(between + i); },
      [&](Index k, Values v) {
        if (k < to.stored) to.store(k, turn_by<SIGN>(conjugate(v), load_in_order(line.chirp + k)));
      });
}
#endif

// What a call transforms.
struct LinesOf {
  double scale;
  Index a, b, c, source_a, source_b, source_c, target_a, target_b, target_c;
  TileTransform transform;
};
INLINE void transform_one(const Line& line, const LinesOf& all, const Real* source, Real* target) {
  const Real scale = Real(all.scale);
  const Index n = line.height * line.width, panels_size = panels_of(line) * line.height;
  Values* panels = line_memory_of_thread(panels_size + (CHIRP ? n / lane_count + 1 : 0));
#if HALVES
  if (SIGN < 0) modes_of_real_line(line, all.transform, panels, scale, source, (Complex*)target);
  else real_line_of_modes(line, all.transform, panels, scale, (const Complex*)source, target);
#elif !REALS && !CHIRP
  transform_line<SIGN>(
      line, all.transform, panels,
      [&](Index i) {
        const Complex* from = (const Complex*)source + i;
        prefetch_after(from);
        return scale * load_in_order(from);
      },
      [&](Index k, Values v) { store_in_order((Complex*)target + k, v); });
#else
  const Numbers from((Real*)source, line.points, REALS && SIGN < 0, REALS && SIGN > 0);
  const Numbers to(target, line.points, REALS && SIGN > 0, REALS && SIGN < 0);
#if CHIRP
  transform_by_chirp(line, all.transform, panels, (Complex*)(panels + panels_size), scale, from, to);
#else
  transform_line<SIGN>(
      line, all.transform, panels, [&](Index i) { return scale * from.load(i); },
      [&](Index k, Values v) { to.store(k, v); });
#endif
#endif
}

// Transform lines [a][b][c][]: of complex numbers; or, by the constants, between real ones and half of their
// modes. All are multiplied by `scale`. Lines are contiguous; strides count real numbers. Both arrays may be
// the same.
KERNEL fft_lines(const Real* source, Real* target, const LinesOf* sizes, const Line* of) {
  const LinesOf all = *sizes;
  const Line line = *of;
  const Index lines = all.a * all.b * all.c, threads = omp_get_max_threads();
  const auto transform_number = [&](Index number) {
    const Index a = number / (all.b * all.c), b = number / all.c % all.b, c = number % all.c;
    transform_one(line, all, source + (a * all.source_a + b * all.source_b + c * all.source_c),
                  target + (a * all.target_a + b * all.target_b + c * all.target_c));
  };
  // Threads share a line, unless each has several.
  if (lines >= 4 * threads) {
    FOR_BLOCKS(number, lines) transform_number(number);
  } else {
    for (Index number = 0; number < lines; ++number) transform_number(number);
  }
}

#endif
