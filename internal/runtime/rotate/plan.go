package rotate

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// tidying is what is to be done with rotated files before the live log becomes
// one of them.
type tidying struct {
	Remove   []string
	Compress []string
}

// tidy decides about the files in a log's directory. When it is done and the
// live log was renamed, there are at most maxFiles of them, the live one
// included. What does not look like a rotated file of this log is left alone.
func tidy(files []string, live string, maxFiles int) tidying {
	var plan tidying
	plain, compressed := map[string]bool{}, map[string]bool{}
	for _, name := range files {
		stamp := stampOf(name, live)
		if stamp == "" {
			continue
		}
		switch rotated := live + "." + stamp; name[len(rotated):] {
		case "":
			plain[rotated] = true
		case compressedSuffix:
			compressed[rotated] = true
		case unfinishedSuffix:
			plan.Remove = append(plan.Remove, name)
		}
	}
	for name := range plain {
		if compressed[name] { // an agent died between the two
			plan.Remove = append(plan.Remove, name)
			delete(plain, name)
		}
	}
	// Names sort by time. The live log and the one that it becomes stay.
	all := slices.AppendSeq(slices.Collect(maps.Keys(plain)), maps.Keys(compressed))
	slices.Sort(all)
	for len(all) > max(maxFiles-2, 0) {
		name := all[0]
		if compressed[name] {
			name += compressedSuffix
		}
		plan.Remove = append(plan.Remove, name)
		all = all[1:]
	}
	for _, name := range all {
		if plain[name] {
			plan.Compress = append(plan.Compress, name)
		}
	}
	slices.Sort(plan.Remove)
	return plan
}

// minPace is the least time between two looks: rotated files are named by the
// second.
const minPace = time.Second

// pace is how long a log takes to reach its limit if it goes on growing as it
// has. One that is as large as it may be after a whole period can wait for
// another; one that was found many times that large needs to be looked at sooner.
func pace(size, limit int64, elapsed time.Duration) time.Duration {
	return max(time.Duration(float64(elapsed)*float64(limit)/float64(size)), minPace)
}

// nextName is what the live log is renamed to. It comes after the names that there
// are, since files are told old from new by them, also when the clock was set back.
func nextName(files []string, live string, now time.Time) string {
	stamp, last := now.Format(stampFormat), ""
	for _, name := range files {
		last = max(last, stampOf(name, live))
	}
	if t, err := time.Parse(stampFormat, last); err == nil && last >= stamp {
		// Read without a zone, whose changes would set it back once more. What comes
		// after the last second that can be written is not waited for.
		if after := t.Add(time.Second).Format(stampFormat); isStamp(after) {
			stamp = after
		}
	}
	return live + "." + stamp
}

// stampOf is the time in the name of a rotated file of the log, empty for others.
func stampOf(name, live string) string {
	rest, ok := strings.CutPrefix(name, live+".")
	if !ok || len(rest) < len(stampFormat) || !isStamp(rest[:len(stampFormat)]) {
		return ""
	}
	return rest[:len(stampFormat)]
}

func isStamp(s string) bool {
	_, err := time.Parse(stampFormat, s)
	return err == nil
}

// leftovers are files that an agent left which died while it compressed.
func leftovers(files []string, live string) []string {
	return tidy(files, live, len(files)+2).Remove // with room for all, nothing is too old
}
