package admin

import "time"

// sample is a status with a bit of everything.
func sample() Status {
	now := time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)
	up := func(typ string, took float64) *Check {
		return &Check{Type: typ, Up: true, At: now.Add(-time.Second), Took: took, Since: now.Add(-76 * time.Hour), Probes: 136_812}
	}
	return Status{
		Version: "v0.1.0", PID: 4242, Started: now.Add(-76*time.Hour - 12*time.Minute), Now: now, State: "running",
		Config: "/etc/poise/poise.yaml", LastReload: ReloadInfo{At: now.Add(-26 * time.Hour), OK: true},
		Warnings:    []string{"service postgres: tls.certificates[0].cert: key /etc/poise/tls/a.key does not belong to certificate /etc/poise/tls/example.pem; what was loaded before stays in use"},
		Connections: 1337, RatesOver: 3.004,
		Services: []Service{
			{
				Name: "postgres", Protocol: "tls", Listen: []string{":5432"}, Pool: "pg", State: "up", Connections: 1204, Total: 8_412_377,
				BytesIn: 91e9, BytesOut: 1.7e12, Rates: &Rates{212.4, 1_204_512, 48_221_904},
				Outcomes: map[string]uint64{"ok": 8_400_121, "client_reset": 10_802, "backend_reset": 212, "connect_failed": 38, "refused_acl": 77, "tls_failed": 1204},
				Refused:  map[string]uint64{"refused_acl": 77, "tls_failed": 1204},
				TLS: &ServiceTLS{Handshakes: 8_411_100, Resumed: 6_740_000, Active: 3, Certificates: []Certificate{
					{Path: "/etc/poise/tls/example.pem", Names: []string{"db.example.org", "*.db.example.org"}, KeyType: "ECDSA", Expires: now.Add(61 * 24 * time.Hour)},
					{Path: "/etc/poise/tls/example-rsa.pem", Names: []string{"db.example.org"}, KeyType: "RSA", Expires: now.Add(13*24*time.Hour + time.Hour)},
					{Path: "/etc/poise/tls/old.pem", Names: []string{"old.example.org"}, KeyType: "RSA", Expires: now.Add(-26 * time.Hour)},
				}},
			},
			{
				Name: "mqtt", Protocol: "tcp", Listen: []string{"192.0.2.10:1883", "[2001:db8::10]:1883"}, Pool: "brokers", State: "up", Connections: 130,
				Total: 9123, Rates: &Rates{0.3, 812, 95_310}, Outcomes: map[string]uint64{"ok": 8993},
			},
			{
				Name: "dns", Protocol: "udp", Listen: []string{":53"}, Pool: "resolvers", State: "up", Connections: 812, Total: 4_120_331,
				BytesIn: 3e8, BytesOut: 1.1e9, Rates: &Rates{1204, 96_320, 301_000}, Outcomes: map[string]uint64{"ok": 4_119_519, "no_backend": 4},
				Refused: map[string]uint64{"no_backend": 4},
				UDP: &ServiceUDP{
					DatagramsIn: 4_120_390, DatagramsOut: 4_119_602, Dropped: map[string]uint64{"no_backend": 4, "too_large": 1},
					Rates: &DatagramRates{In: 1210.4, Out: 1209.8},
				},
			},
			{Name: "old-ldap", Protocol: "tcp", Pool: "ldap", State: "draining", Connections: 3, Total: 77_120, Rates: &Rates{}, Outcomes: map[string]uint64{"ok": 77_117}},
		},
		Pools: []Pool{
			{Name: "pg", Balance: "least-conn", Eligible: 2, Backends: []Backend{
				{
					Name: "db1", Address: "10.0.0.11:5432", State: "up", Weight: 100, Connections: 611, Total: 4_300_120,
					Rates: &Rates{109.2, 611_002, 24_002_001}, ConnectP50: 0.000_31, ConnectP99: 0.0021, FirstByteP50: 0.0012, FirstByteP99: 0.019,
					Check: up("tcp", 0.000_41),
				},
				{
					Name: "db2", Address: "10.0.0.12:5432", State: "up", Weight: 100, Connections: 593, Total: 4_100_004, ConnectFailures: 38,
					Rates: &Rates{103.2, 593_510, 24_219_903}, ConnectP50: 0.000_33, ConnectP99: 0.0019, FirstByteP50: 0.0013, FirstByteP99: 0.021,
					Check: up("tcp", 0.000_38),
				},
				{
					Name: "db3", Address: "10.0.0.13:5432", State: "down", Weight: 50, Total: 12_253, ConnectFailures: 3,
					Reason: "L4CON: connect: connection refused", Rates: &Rates{}, ConnectP50: 0.000_35, ConnectP99: 0.0022,
					Check: &Check{Type: "tcp", Reason: "L4CON", Detail: "connect: connection refused", At: now.Add(-4 * time.Second), Since: now.Add(-192 * time.Second), Probes: 40_000},
				},
				{
					Name: "standby", Address: "10.0.1.11:5432", State: "up", Weight: 100, Backup: true, Rates: &Rates{},
					Check: &Check{Type: "tcp", Up: true, Reason: "L4TOUT", Detail: "no connection within 1s", At: now, Since: now.Add(-time.Hour), Probes: 12},
				},
				{
					Name: "replica", Address: "10.0.1.12:5432", State: "standby", Reason: "ROLE: a replica, want the primary", Weight: 100, Rates: &Rates{},
					Check: &Check{Type: "postgres", Reason: "ROLE", Detail: "a replica, want the primary", At: now, Since: now.Add(-time.Hour), Probes: 12},
				},
			}},
			{Name: "brokers", Balance: "maglev", Eligible: 1, Backends: []Backend{
				{Name: "10.0.2.1:1883", Address: "10.0.2.1:1883", State: "up", Weight: 100, Connections: 130, Total: 9100, Rates: &Rates{0.3, 812, 95_310}, ConnectP50: 0.0051, ConnectP99: 1.21},
				{Name: "10.0.2.2:1883", Address: "10.0.2.2:1883", State: "ejected", Reason: "5 failed connects in a row, returns in 8s", Weight: 100, Total: 23, ConnectFailures: 5, Rates: &Rates{}},
				{Name: "10.0.2.3:1883", Address: "10.0.2.3:1883", State: "removed", Weight: 100, Connections: 2, Total: 4410},
			}},
			{
				Name: "cache", Balance: "ab: least-conn / p2c", Eligible: 3, Panic: true, OnBackup: true, Queue: 17, Denied: 1204,
				Backends: []Backend{
					{Name: "cache1", Address: "10.0.3.1:6379", State: "half-open", Reason: "ejection time is over, on trial", Trials: 1, Weight: 100, Rates: &Rates{}},
					{Name: "cache2", Address: "10.0.3.2:6379", State: "ejected", Reason: "5 connections in a row failed, ejected for 40s", EjectedUntil: now.Add(8 * time.Second), Weight: 100, Rates: &Rates{}},
					{Name: "cache3", Address: "10.0.3.3:6379", State: "up", Ramp: 35, Weight: 100, Backup: true, Rates: &Rates{}},
				},
				Strategies: []Strategy{
					{Name: "a", Balance: "least-conn", Sessions: 70_120, Share: 0.7012, Success: 0.9991, P50: 0.0012, P95: 0.0031, P99: 0.019},
					{Name: "b", Balance: "p2c", Sessions: 29_880, Share: 0.2988, Success: 0.999, P50: 0.0013, P95: 0.0034, P99: 0.021},
				},
			},
			{Name: "collectors", Balance: "round-robin", Eligible: 1, Backends: []Backend{
				{Name: "10.0.4.1:514", Address: "10.0.4.1:514", State: "up", Weight: 100, Datagrams: 41_207, Rates: &Rates{0, 8120, 0}},
			}},
			{Name: "ldap", Balance: "round-robin", Backends: []Backend{
				{Name: "ldap1", Address: "unix:/run/slapd/ldapi", State: "maint", Weight: 100, Connections: 3, Total: 77_120, Rates: &Rates{}},
			}},
		},
	}
}
