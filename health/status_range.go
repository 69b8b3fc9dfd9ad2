package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct{ Lo, Hi int }

// String returns "204" or "200-399".
func (r StatusRange) String() string {
	if r.Lo == r.Hi {
		return strconv.Itoa(r.Lo)
	}
	return strconv.Itoa(r.Lo) + "-" + strconv.Itoa(r.Hi)
}

// ParseStatusRanges reads a comma-separated list of codes and ranges such as
// "200-399,404". Codes are 100..599; blanks around an item are allowed. The error
// says which item is wrong and what would be right.
func ParseStatusRanges(s string) ([]StatusRange, error) {
	var ranges []StatusRange
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		lo, hi, isRange := strings.Cut(item, "-")
		if !isRange {
			hi = lo
		}
		r := StatusRange{statusCode(lo), statusCode(hi)}
		if r.Lo == 0 || r.Hi == 0 {
			return nil, fmt.Errorf("%q is neither a status code nor a range; want 100 to 599, as in \"200-399,404\"", item)
		}
		if r.Lo > r.Hi {
			return nil, fmt.Errorf("%q starts above its end; want \"%d-%d\"", item, r.Hi, r.Lo)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// statusCode returns 0 for what is not three digits of a code 100..599.
func statusCode(s string) int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || len(s) != 3 || n < 100 || n > 599 {
		return 0
	}
	return int(n)
}

// statusRanges is a set of codes.
type statusRanges []StatusRange

func (rs statusRanges) contain(code int) bool {
	return slices.ContainsFunc(rs, func(r StatusRange) bool { return r.Lo <= code && code <= r.Hi })
}

// String returns what ParseStatusRanges reads.
func (rs statusRanges) String() string {
	items := make([]string, len(rs))
	for i, r := range rs {
		items[i] = r.String()
	}
	return strings.Join(items, ",")
}
