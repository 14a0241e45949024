package script

import (
	"fmt"
	"strconv"
	"strings"
)

// part is a row that several tests prove together, and their number.
type part struct {
	of  int
	row string
}

// difference is a row from which the agent differs by a decision.
type difference struct{ row, decision string }

func (s *Scenario) addPart(value string) error {
	of, row, _ := strings.Cut(value, " ")
	n, err := strconv.Atoi(of)
	if err != nil {
		return fmt.Errorf("read head part: want the number of tests and a row: %w", err)
	}
	s.Parts = append(s.Parts, part{n, row})
	return nil
}

func (s *Scenario) addDifference(value string) error {
	row, decision, ok := strings.Cut(value, " ")
	if !ok {
		return fmt.Errorf("read head differs: want a row and the number of a decision, not %q", value)
	}
	s.Differs = append(s.Differs, difference{row, decision})
	return nil
}
