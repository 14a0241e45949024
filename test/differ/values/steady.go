package values

import "regexp"

// place is a label that names something of the machine: a device, a mount point, a network interface.
var place = regexp.MustCompile(`\b(?:device|interfaces?)="([^"]*)"`)

// Steady leaves out of each turn's shots, by endpoint, the series that name a place of the machine that was not there
// at every turn: other programs of the machine mount and unmount meanwhile, and so do other agents. there has the places
// of each turn; what none of them knows is left as it is.
func Steady(turns []map[string]Shot, there []map[string]bool) {
	known := map[string]int{}
	for _, places := range there {
		for p := range places {
			known[p]++
		}
	}
	for _, shots := range turns {
		for _, shot := range shots {
			for series := range shot {
				m := place.FindStringSubmatch(series)
				if m != nil && known[m[1]] > 0 && known[m[1]] < len(there) {
					delete(shot, series)
				}
			}
		}
	}
}
