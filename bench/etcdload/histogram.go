package main

import (
	"math/bits"
	"time"
)

// A log-linear histogram of durations: 128 steps for each doubling, so that a quantile is off by less than 1 %.
// bench/src/histogram.ts has the same buckets: both load generators round in the same way.
const (
	stepBits   = 7
	steps      = 1 << stepBits
	doublings  = 30 // microseconds, up to about 2^36 us = 19 hours
	bucketsMax = steps * (doublings + 1)
)

type histogram struct {
	counts [bucketsMax]uint32
	total  uint64
	max    time.Duration
}

func bucketOf(micros uint64) int {
	if micros < steps {
		return int(micros)
	}
	shift := bits.Len64(micros) - stepBits - 1
	index := (shift+1)*steps + int(micros>>shift) - steps
	return min(index, bucketsMax-1)
}

// highestOf is the largest value, in microseconds, that falls into the bucket.
func highestOf(index int) uint64 {
	if index < steps {
		return uint64(index)
	}
	shift := index/steps - 1
	return uint64(index%steps+steps+1)<<shift - 1
}

func (h *histogram) record(d time.Duration) {
	h.counts[bucketOf(uint64(max(0, d.Microseconds())))]++
	h.total++
	h.max = max(h.max, d)
}

func (h *histogram) add(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// quantileMs is the value that at least the fraction q of all samples does not exceed.
func (h *histogram) quantileMs(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	wanted := max(1, uint64(q*float64(h.total)+0.5))
	var seen uint64
	for i, n := range h.counts {
		seen += uint64(n)
		if seen >= wanted {
			return float64(min(highestOf(i), uint64(h.max.Microseconds()))) / 1000
		}
	}
	return float64(h.max.Microseconds()) / 1000
}
