package admit

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
)

// Spec is the validated admission policy of one service. The zero Spec admits
// everybody.
type Spec struct {
	Deny, Allow []netip.Prefix // masked, unmapped; Deny wins, a non-empty Allow denies the rest
	DenyFiles   []string       // files with further prefixes, one a line, "#" starts a comment
	AllowFiles  []string       // likewise; naming one denies the rest even if it is empty

	PerSource  int     // open at once from one source; 0 = no limit
	Rate       float64 // new ones a second for the service; 0 = no limit
	SourceRate float64 // new ones a second from one source; 0 = no limit
	// A source is an address masked to so many bits, 1..32 and 1..128; 0 = all of
	// them.
	Mask4, Mask6 int
	Silent       bool // refuse by silence, not by a reset
}

// validate checks what a caller other than the configuration may have got wrong.
func (s *Spec) validate() error {
	var errs []error
	for _, r := range []struct {
		name string
		rate float64
	}{{"Rate", s.Rate}, {"SourceRate", s.SourceRate}} {
		if !(r.rate >= 0) || math.IsInf(r.rate, 0) { // the first is also true of NaN
			errs = append(errs, fmt.Errorf("%s is %v, want 0 or more", r.name, r.rate))
		}
	}
	if s.PerSource < 0 || s.PerSource > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("PerSource is %d, want 0..%d", s.PerSource, math.MaxInt32))
	}
	if s.Mask4 < 0 || s.Mask4 > 32 {
		errs = append(errs, fmt.Errorf("Mask4 is %d, want 0..32", s.Mask4))
	}
	if s.Mask6 < 0 || s.Mask6 > 128 {
		errs = append(errs, fmt.Errorf("Mask6 is %d, want 0..128", s.Mask6))
	}
	return errors.Join(errs...)
}
