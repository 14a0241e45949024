package rotate

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// cleanup is what to do with rotated files before the live file is renamed.
type cleanup struct {
	Remove   []string
	Compress []string
}

// planCleanup decides what to do with the files in a log's directory. After it and the rename of the live
// file, there are at most maxFiles, including the live one. Files that are not rotated files of
// this log are ignored.
func planCleanup(files []string, live string, maxFiles int) cleanup {
	var plan cleanup
	plain, compressed := map[string]bool{}, map[string]bool{}
	for _, name := range files {
		stamp := rotationTime(name, live)
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
		if compressed[name] { // an agent was killed between the two steps
			plan.Remove = append(plan.Remove, name)
			delete(plain, name)
		}
	}
	// Names sort by time. The live file and the one that it becomes stay.
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

// minCheckPeriod is the minimum time between two checks. Names of rotated files have a resolution of a
// second.
const minCheckPeriod = time.Second

// nextCheck estimates how long a log takes to reach its limit at its current rate. The result is the
// time until the next check.
func nextCheck(size, limit int64, elapsed time.Duration) time.Duration {
	return max(time.Duration(float64(elapsed)*float64(limit)/float64(size)), minCheckPeriod)
}

// nextName returns the name that the live file gets. It sorts after all existing ones, even when
// the clock was set back, since readers order files by name.
func nextName(files []string, live string, now time.Time) string {
	stamp, last := now.Format(stampFormat), ""
	for _, name := range files {
		last = max(last, rotationTime(name, live))
	}
	if t, err := time.Parse(stampFormat, last); err == nil && last >= stamp {
		// Parsed as UTC, so that a change of the time zone does not set the clock back. The last
		// representable second is used as it is.
		if after := t.Add(time.Second).Format(stampFormat); isStamp(after) {
			stamp = after
		}
	}
	return live + "." + stamp
}

// rotationTime returns the time in the name of a rotated file of the log, "" for other files.
func rotationTime(name, live string) string {
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

// leftovers returns the files left by an agent that was killed during compression.
func leftovers(files []string, live string) []string {
	return planCleanup(files, live, len(files)+2).Remove // with room for all files, none is too old
}
