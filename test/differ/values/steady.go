package values

import "regexp"

// place is a label that names something of the machine: a device, a mount point, a network interface.
var place = regexp.MustCompile(`\b(?:device|interfaces?)="([^"]*)"`)

// Steady drops, from the shots of each turn, the series of a place that did not exist in every turn: other programs
// mount and unmount meanwhile. there has the places of each turn. Series without a place are kept.
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
