package daemon

import (
	"fmt"
	"reflect"
)

// fileChanges says what a reload has found changed in files that services name as they
// did before.
func fileChanges(old, now *generation) (lines []string) {
	for _, n := range now.services {
		o := old.service(n.Name)
		if o == nil {
			continue
		}
		if len(n.Admit.AllowFiles)+len(n.Admit.DenyFiles) > 0 && reflect.DeepEqual(o.Admit, n.Admit) {
			was, is := o.admit.Prefixes(), n.admit.Prefixes()
			if !reflect.DeepEqual(was, is) {
				lines = append(lines, fmt.Sprintf("service %s: access: the files have changed; prefixes, when merged: allowed %d -> %d, denied %d -> %d",
					n.Name, len(was.Allow), len(is.Allow), len(was.Deny), len(is.Deny)))
			}
		}
		if o.certs != nil && n.certs != nil && reflect.DeepEqual(o.TLS, n.TLS) && !reflect.DeepEqual(o.certs.Certificates(), n.certs.Certificates()) {
			lines = append(lines, fmt.Sprintf("service %s: tls: the certificates have changed", n.Name))
		}
	}
	return lines
}
