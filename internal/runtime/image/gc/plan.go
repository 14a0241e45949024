package gc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// key identifies an image. If images depend on the runtime handler, the same ID may occur several
// times.
type key struct{ id, handler string }

func keyOf(img *runtimeapi.Image) key { return key{img.GetId(), img.GetSpec().GetRuntimeHandler()} }

// record holds what is known of one image.
type record struct {
	key
	size     uint64
	pinned   bool
	inUse    bool
	detected time.Time // when first detected; zero: before the agent started
	used     time.Time // when last used; zero: never
}

// observe updates the records to the images that are present. Images of the first pass have no
// known detection time.
func observe(
	old map[key]record, images []*runtimeapi.Image, used map[string]bool, first bool, now time.Time,
) map[key]record {
	out := make(map[key]record, len(images))
	for _, img := range images {
		r, known := old[keyOf(img)]
		if !known {
			r.key = keyOf(img)
			if !first {
				r.detected = now
			}
		}
		r.size, r.pinned, r.inUse = img.GetSize(), img.GetPinned(), isUsed(img, used)
		if r.inUse {
			r.used = now
		}
		out[r.key] = r
	}
	return out
}

// isUsed reports whether the image is in use by any of its names.
func isUsed(img *runtimeapi.Image, used map[string]bool) bool {
	named := func(name string) bool { return used[name] }
	return used[img.GetId()] || slices.ContainsFunc(img.GetRepoDigests(), named) ||
		slices.ContainsFunc(img.GetRepoTags(), named)
}

// candidates returns the removable images in the order of removal: least recently used first, then
// by detection time.
func candidates(records map[key]record) []record {
	var out []record
	for _, r := range records {
		if !r.pinned && !r.inUse {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b record) int {
		return cmp.Or(a.used.Compare(b.used), a.detected.Compare(b.detected), cmp.Compare(a.id, b.id),
			cmp.Compare(a.handler, b.handler))
	})
	return out
}

// tooOld returns the candidates that have been unused for longer than maxAge. Usage from before
// began is not known, so age is counted from there.
func tooOld(from []record, maxAge time.Duration, began, now time.Time) (old, rest []record) {
	for _, r := range from {
		idle := began
		for _, t := range []time.Time{r.detected, r.used} {
			if t.After(idle) {
				idle = t
			}
		}
		if maxAge > 0 && now.Sub(idle) > maxAge {
			old = append(old, r)
		} else {
			rest = append(rest, r)
		}
	}
	return old, rest
}

// oldEnough reports whether an image is old enough to be removed. A new image may be about to be
// used.
func oldEnough(r record, minAge time.Duration, now time.Time) bool {
	return r.detected.IsZero() || now.Sub(r.detected) >= minAge
}

// excess returns how many bytes must be freed to get to the low threshold, a percentage of the
// capacity. over is false below the high threshold.
func excess(capacity, available uint64, high, low int) (bytes uint64, percent int, over bool) {
	available = min(available, capacity)
	percent = 100 - int(available*100/capacity)
	if percent < high {
		return 0, percent, false
	}
	target := capacity * uint64(100-low) / 100
	if target <= available {
		return 0, percent, true
	}
	return target - available, percent, true
}

// sizeText formats a number of bytes in binary units.
func sizeText(bytes uint64) string {
	unit, size := -1, float64(bytes)
	for ; size >= 1024 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

var units = []string{"KiB", "MiB", "GiB", "TiB"}
