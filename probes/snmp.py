# SPDX-License-Identifier: Apache-2.0
"""The protocols' own counters: IPv4, ICMP, TCP and UDP, from ``/proc/net/snmp`` and ``/proc/net/netstat``.

Sources: the kernel's ``Documentation/networking/snmp_counter.rst``, RFC 1213 and RFC 4293 for the
standard ones, and the kernel commits that brought the others. A metric's name is the kernel's in
lower case with underscores, without the prefix ``TCP``; ``origin`` has the kernel's.
"""

from collections.abc import Callable, Iterator

from sysmond.probe import Fields, Host, Metric, Probe, Row, Table, counter, gauge, hookimpl, state

SNMP = "/proc/net/snmp"
NETSTAT = "/proc/net/netstat"


def _counters(section: str, catalogue: tuple[tuple[str, str, str], ...], unit: str = "1") -> tuple[Metric, ...]:
    """Declare counters: the metric's name, the kernel's, and what it counts."""
    return tuple(counter(name, unit, doc, origin=f"{section} {field}") for name, field, doc in catalogue)


_IP = f"{SNMP} Ip:"
_IP_EXT = f"{NETSTAT} IpExt:"
_ICMP = f"{SNMP} Icmp:"
_TCP = f"{SNMP} Tcp:"
_TCP_EXT = f"{NETSTAT} TcpExt:"
_UDP = f"{SNMP} Udp:"

# What goes wrong here goes wrong for long; the counters lose nothing between two readings.
SELDOM_S = 10.0

IP = Table(
    "ip",
    doc="IPv4 datagrams. A datagram joined from several by GRO counts once, unless a metric says otherwise.",
    metrics=(
        state("forwarding", "1 if this host forwards datagrams, 2 if not.", f"{_IP} Forwarding"),
        gauge("default_ttl", "1", "Time to live of datagrams that set none.", origin=f"{_IP} DefaultTTL"),
        *_counters(
            _IP,
            (
                ("in_receives", "InReceives", "Datagrams received, wrong ones included."),
                ("in_hdr_errors", "InHdrErrors", "Datagrams dropped for an error in their header."),
                ("in_addr_errors", "InAddrErrors", "Datagrams dropped for an address that is invalid or not ours."),
                ("forw_datagrams", "ForwDatagrams", "Datagrams forwarded, or tried to."),
                ("in_unknown_protos", "InUnknownProtos", "Datagrams dropped for an unsupported protocol."),
                ("in_discards", "InDiscards", "Faultless incoming datagrams dropped, such as for lack of memory."),
                ("in_delivers", "InDelivers", "Datagrams delivered to the protocols above."),
                ("out_requests", "OutRequests", "Datagrams the protocols above asked to send."),
                (
                    "out_discards",
                    "OutDiscards",
                    "Faultless outgoing datagrams dropped, such as for lack of memory.",
                ),
                ("out_no_routes", "OutNoRoutes", "Outgoing datagrams dropped for lack of a route."),
                ("reasm_timeout", "ReasmTimeout", "Reassemblies given up because a fragment was overdue."),
                ("reasm_reqds", "ReasmReqds", "Fragments received that need reassembly."),
                ("reasm_oks", "ReasmOKs", "Datagrams reassembled."),
                ("reasm_fails", "ReasmFails", "Failures to reassemble, for whatever reason."),
                ("frag_oks", "FragOKs", "Datagrams split into fragments."),
                ("frag_fails", "FragFails", "Datagrams dropped that needed fragmenting and could not be."),
                ("frag_creates", "FragCreates", "Fragments made."),
                ("out_transmits", "OutTransmits", "Datagrams handed to the link, fragments and forwarded ones too."),
            ),
        ),
        *_counters(
            _IP_EXT,
            (
                ("in_no_routes", "InNoRoutes", "Incoming datagrams dropped for lack of a route onwards."),
                ("in_truncated_pkts", "InTruncatedPkts", "Datagrams dropped for being shorter than their header says."),
                ("in_mcast_pkts", "InMcastPkts", "Multicast datagrams received."),
                ("out_mcast_pkts", "OutMcastPkts", "Multicast datagrams sent."),
                ("in_bcast_pkts", "InBcastPkts", "Broadcast datagrams received."),
                ("out_bcast_pkts", "OutBcastPkts", "Broadcast datagrams sent."),
            ),
        ),
        *_counters(
            _IP_EXT,
            (
                ("in_octets", "InOctets", "Bytes received, IP headers included, link headers not."),
                ("out_octets", "OutOctets", "Bytes sent, IP headers included, link headers not."),
                ("in_mcast_octets", "InMcastOctets", "Bytes of multicast received."),
                ("out_mcast_octets", "OutMcastOctets", "Bytes of multicast sent."),
                ("in_bcast_octets", "InBcastOctets", "Bytes of broadcast received."),
                ("out_bcast_octets", "OutBcastOctets", "Bytes of broadcast sent."),
            ),
            unit="B",
        ),
        *_counters(
            _IP_EXT,
            (
                ("in_csum_errors", "InCsumErrors", "Datagrams dropped for a wrong checksum."),
                ("in_no_ect_pkts", "InNoECTPkts", "Packets without ECN; each one joined by GRO counts."),
                ("in_ect1_pkts", "InECT1Pkts", "Packets marked ECT(1); each one joined by GRO counts."),
                ("in_ect0_pkts", "InECT0Pkts", "Packets marked ECT(0); each one joined by GRO counts."),
                ("in_ce_pkts", "InCEPkts", "Packets marked as having met congestion; each one joined by GRO counts."),
                ("reasm_overlaps", "ReasmOverlaps", "Fragments dropped for overlapping another."),
            ),
        ),
    ),
)

ICMP = Table(
    "icmp",
    doc="ICMP messages over IPv4. Each kind has a metric for what came in and one for what went out.",
    metrics=_counters(
        _ICMP,
        (
            ("in_msgs", "InMsgs", "Messages received, wrong ones included."),
            ("in_errors", "InErrors", "Messages received with an error."),
            ("in_csum_errors", "InCsumErrors", "Messages received with a wrong checksum; also in in_errors."),
            ("in_dest_unreachs", "InDestUnreachs", "Destination unreachable, received."),
            ("in_time_excds", "InTimeExcds", "Time exceeded, received."),
            ("in_parm_probs", "InParmProbs", "Parameter problem, received."),
            ("in_src_quenchs", "InSrcQuenchs", "Source quench, received."),
            ("in_redirects", "InRedirects", "Redirect, received."),
            ("in_echos", "InEchos", "Echo request (ping), received."),
            ("in_echo_reps", "InEchoReps", "Echo reply, received."),
            ("in_timestamps", "InTimestamps", "Timestamp request, received."),
            ("in_timestamp_reps", "InTimestampReps", "Timestamp reply, received."),
            ("in_addr_masks", "InAddrMasks", "Address mask request, received."),
            ("in_addr_mask_reps", "InAddrMaskReps", "Address mask reply, received."),
            ("out_msgs", "OutMsgs", "Messages sent, or tried to."),
            ("out_errors", "OutErrors", "Messages not sent because of a problem within ICMP."),
            ("out_rate_limit_global", "OutRateLimitGlobal", "Messages not sent because of the host's rate limit."),
            ("out_rate_limit_host", "OutRateLimitHost", "Messages not sent because of one destination's rate limit."),
            ("out_dest_unreachs", "OutDestUnreachs", "Destination unreachable, sent."),
            ("out_time_excds", "OutTimeExcds", "Time exceeded, sent."),
            ("out_parm_probs", "OutParmProbs", "Parameter problem, sent."),
            ("out_src_quenchs", "OutSrcQuenchs", "Source quench, sent."),
            ("out_redirects", "OutRedirects", "Redirect, sent."),
            ("out_echos", "OutEchos", "Echo request (ping), sent."),
            ("out_echo_reps", "OutEchoReps", "Echo reply, sent."),
            ("out_timestamps", "OutTimestamps", "Timestamp request, sent."),
            ("out_timestamp_reps", "OutTimestampReps", "Timestamp reply, sent."),
            ("out_addr_masks", "OutAddrMasks", "Address mask request, sent."),
            ("out_addr_mask_reps", "OutAddrMaskReps", "Address mask reply, sent."),
        ),
    ),
)

TCP = Table(
    "tcp",
    doc="TCP over IPv4 and IPv6, and the few counters of other layers that the kernel lists among TCP's.",
    metrics=(
        state(
            "rto_algorithm",
            "How the retransmission timeout is computed: 1 other, 2 constant, 3 MIL-STD-1778, 4 Van Jacobson.",
            f"{_TCP} RtoAlgorithm",
        ),
        gauge("rto_min", "s", "Shortest retransmission timeout.", 3, f"{_TCP} RtoMin"),
        gauge("rto_max", "s", "Longest retransmission timeout.", 3, f"{_TCP} RtoMax"),
        gauge("max_conn", "1", "Most connections possible; -1 for no fixed limit.", origin=f"{_TCP} MaxConn"),
        *_counters(
            _TCP,
            (
                ("active_opens", "ActiveOpens", "Connections opened from this side: SYNs sent."),
                ("passive_opens", "PassiveOpens", "Connections opened from the other side: SYNs accepted."),
                ("attempt_fails", "AttemptFails", "Attempts to connect, of either side, that failed."),
                ("estab_resets", "EstabResets", "Established connections ended by a reset."),
            ),
        ),
        gauge("curr_estab", "1", "Connections in ESTABLISHED or CLOSE_WAIT.", origin=f"{_TCP} CurrEstab"),
        *_counters(
            _TCP,
            (
                ("in_segs", "InSegs", "Segments received, wrong ones included; those joined by GRO count once."),
                ("out_segs", "OutSegs", "Segments sent, those split by GSO each; retransmitted ones not."),
                ("retrans_segs", "RetransSegs", "Segments sent again."),
                ("in_errs", "InErrs", "Segments received with an error, such as a wrong checksum."),
                ("out_rsts", "OutRsts", "Resets (RST) that this side sent, or tried to."),
                ("in_csum_errors", "InCsumErrors", "Segments received with a wrong checksum."),
            ),
        ),
        *_counters(
            _TCP_EXT,
            (
                ("syncookies_sent", "SyncookiesSent", "SYN cookies sent."),
                ("syncookies_recv", "SyncookiesRecv", "Answers with a valid SYN cookie received."),
                ("syncookies_failed", "SyncookiesFailed", "Answers with an invalid SYN cookie received."),
                ("embryonic_rsts", "EmbryonicRsts", "Resets received for connections still in SYN_RECV."),
                ("prune_called", "PruneCalled", "Times a socket short of memory had its queues collapsed."),
                ("rcv_pruned", "RcvPruned", "Times pruning did not free enough and data were refused."),
                ("ofo_pruned", "OfoPruned", "Times data out of order were thrown away for lack of memory."),
                ("out_of_window_icmps", "OutOfWindowIcmps", "ICMP messages dropped: their segment is out of window."),
                ("lock_dropped_icmps", "LockDroppedIcmps", "ICMP messages dropped because their socket was busy."),
                ("arp_filter", "ArpFilter", "ARP requests left unanswered because of arp_filter."),
                ("tw", "TW", "TIME_WAIT connections that ran out in the ordinary way."),
                ("tw_recycled", "TWRecycled", "TIME_WAIT connections reused, their timestamp being old enough."),
                ("tw_killed", "TWKilled", "TIME_WAIT connections ended before their time."),
                ("paws_active", "PAWSActive", "Segments in SYN_SENT dropped for an old timestamp (PAWS)."),
                ("paws_estab", "PAWSEstab", "Segments in other states dropped for an old timestamp (PAWS)."),
                ("beyond_window", "BeyondWindow", "Segments dropped for ending beyond the window offered."),
                ("ts_ecr_rejected", "TSEcrRejected", "Segments in SYN_RECV that echo a timestamp never sent."),
                ("paws_old_ack", "PAWSOldAck", "Late pure ACKs dropped for an old timestamp (PAWS)."),
                ("paws_timewait", "PAWSTimewait", "Segments in TIME_WAIT dropped for an old timestamp (PAWS)."),
                ("delayed_acks", "DelayedACKs", "Delayed ACKs sent when their timer expired."),
                ("delayed_ack_locked", "DelayedACKLocked", "Delayed ACKs put off because the socket was in use."),
                ("delayed_ack_lost", "DelayedACKLost", "Data received again that had been acknowledged."),
                ("listen_overflows", "ListenOverflows", "SYNs dropped because the accept queue was full."),
                ("listen_drops", "ListenDrops", "Packets to listening sockets dropped, for whatever reason."),
                ("hp_hits", "TCPHPHits", "Segments with data that took the fast path (header prediction)."),
                ("pure_acks", "TCPPureAcks", "ACKs without data that took the slow path."),
                ("hp_acks", "TCPHPAcks", "ACKs without data that took the fast path (header prediction)."),
                ("reno_recovery", "TCPRenoRecovery", "Fast recoveries entered on a connection without SACK."),
                ("sack_recovery", "TCPSackRecovery", "Fast recoveries entered on a connection with SACK."),
                ("sack_reneging", "TCPSACKReneging", "Times the receiver dropped what it had acknowledged by SACK."),
                ("sack_reorder", "TCPSACKReorder", "Reorderings found by SACK."),
                ("reno_reorder", "TCPRenoReorder", "Reorderings found by duplicate ACKs, without SACK."),
                ("ts_reorder", "TCPTSReorder", "Reorderings found by timestamps when a hole was filled."),
                ("full_undo", "TCPFullUndo", "Window reductions undone whole: nothing had been lost."),
                ("partial_undo", "TCPPartialUndo", "Window reductions undone in part."),
                ("dsack_undo", "TCPDSACKUndo", "Window reductions undone: DSACK showed no loss."),
                ("loss_undo", "TCPLossUndo", "Returns from the loss state: the timeout was spurious."),
                ("lost_retransmit", "TCPLostRetransmit", "Retransmitted segments that SACK showed to be lost again."),
                ("reno_failures", "TCPRenoFailures", "Timeouts after duplicate ACKs, before recovery, without SACK."),
                ("sack_failures", "TCPSackFailures", "Timeouts after reordering or SACK, before recovery, with SACK."),
                ("loss_failures", "TCPLossFailures", "Timeouts in the loss state."),
                ("fast_retrans", "TCPFastRetrans", "Segments retransmitted outside the loss state."),
                ("slow_start_retrans", "TCPSlowStartRetrans", "Segments retransmitted in the loss state."),
                ("timeouts", "TCPTimeouts", "Expiries of the retransmission timer."),
                ("loss_probes", "TCPLossProbes", "Tail loss probes sent."),
                ("loss_probe_recovery", "TCPLossProbeRecovery", "Losses found and repaired by a tail loss probe."),
                ("reno_recovery_fail", "TCPRenoRecoveryFail", "Timeouts during fast recovery without SACK."),
                ("sack_recovery_fail", "TCPSackRecoveryFail", "Timeouts during fast recovery with SACK."),
                ("rcv_collapsed", "TCPRcvCollapsed", "Buffers freed by collapsing a receive queue."),
                ("backlog_coalesce", "TCPBacklogCoalesce", "Segments joined to another in a socket's backlog."),
                ("dsack_old_sent", "TCPDSACKOldSent", "DSACKs sent for duplicates of acknowledged data."),
                ("dsack_ofo_sent", "TCPDSACKOfoSent", "DSACKs sent for duplicates of data out of order."),
                ("dsack_recv", "TCPDSACKRecv", "DSACKs received for acknowledged data."),
                ("dsack_ofo_recv", "TCPDSACKOfoRecv", "DSACKs received for data out of order."),
                ("abort_on_data", "TCPAbortOnData", "Connections reset by closing with data under way."),
                ("abort_on_close", "TCPAbortOnClose", "Connections reset by closing with data unread."),
                ("abort_on_memory", "TCPAbortOnMemory", "Connections reset for lack of memory or too many orphans."),
                ("abort_on_timeout", "TCPAbortOnTimeout", "Connections given up because a timer ran out."),
                ("abort_on_linger", "TCPAbortOnLinger", "Orphans in FIN_WAIT_2 ended at once because of TCP_LINGER2."),
                ("abort_failed", "TCPAbortFailed", "Resets that could not be sent."),
                ("memory_pressures", "TCPMemoryPressures", "Times that TCP came under memory pressure."),
            ),
        ),
        counter(
            "memory_pressures_chrono",
            "s",
            "Time that TCP was under memory pressure.",
            3,
            f"{_TCP_EXT} TCPMemoryPressuresChrono",
        ),
        *_counters(
            _TCP_EXT,
            (
                ("sack_discard", "TCPSACKDiscard", "Invalid SACK blocks received."),
                ("dsack_ignored_old", "TCPDSACKIgnoredOld", "Invalid DSACK blocks ignored as being old."),
                ("dsack_ignored_no_undo", "TCPDSACKIgnoredNoUndo", "Invalid DSACK blocks ignored: nothing to undo."),
                ("spurious_rtos", "TCPSpuriousRTOs", "Spurious retransmission timeouts found by F-RTO."),
                ("md5_not_found", "TCPMD5NotFound", "Segments dropped for lacking the MD5 signature agreed on."),
                ("md5_unexpected", "TCPMD5Unexpected", "Segments dropped for an MD5 signature not agreed on."),
                ("md5_failure", "TCPMD5Failure", "Segments dropped for a wrong MD5 signature."),
                ("sack_shifted", "TCPSackShifted", "Buffers partly moved into their neighbour because of a SACK."),
                ("sack_merged", "TCPSackMerged", "Buffers merged with their neighbour because of a SACK."),
                ("sack_shift_fallback", "TCPSackShiftFallback", "Buffers that a SACK should move but could not."),
                ("backlog_drop", "TCPBacklogDrop", "Segments dropped because a socket's backlog was full."),
                ("pf_memalloc_drop", "PFMemallocDrop", "Packets dropped because they used the emergency memory."),
                ("min_ttl_drop", "TCPMinTTLDrop", "Segments dropped for a lower TTL than the socket demands."),
                ("defer_accept_drop", "TCPDeferAcceptDrop", "ACKs dropped to wait for data (TCP_DEFER_ACCEPT)."),
                ("ip_reverse_path_filter", "IPReversePathFilter", "Packets dropped by the reverse path filter of IP."),
                ("time_wait_overflow", "TCPTimeWaitOverflow", "TIME_WAIT sockets not made: there were too many."),
                ("req_q_full_do_cookies", "TCPReqQFullDoCookies", "SYNs answered by cookie, their queue being full."),
                ("req_q_full_drop", "TCPReqQFullDrop", "SYNs dropped, their queue being full."),
                ("retrans_fail", "TCPRetransFail", "Retransmissions that the layers below refused."),
                ("rcv_coalesce", "TCPRcvCoalesce", "Segments joined to another in a receive queue."),
                ("ofo_queue", "TCPOFOQueue", "Segments out of order that were queued."),
                ("ofo_drop", "TCPOFODrop", "Segments out of order dropped for lack of memory."),
                ("ofo_merge", "TCPOFOMerge", "Segments out of order that overlapped queued ones."),
                ("challenge_ack", "TCPChallengeACK", "Challenge ACKs sent."),
                ("syn_challenge", "TCPSYNChallenge", "SYNs on a live connection, to be answered by a challenge ACK."),
                ("fast_open_active", "TCPFastOpenActive", "Fast opens from this side that the other accepted."),
                ("fast_open_active_fail", "TCPFastOpenActiveFail", "Fast opens from this side that failed."),
                ("fast_open_passive", "TCPFastOpenPassive", "Fast opens from the other side accepted."),
                ("fast_open_passive_fail", "TCPFastOpenPassiveFail", "Fast opens from the other side refused."),
                (
                    "fast_open_listen_overflow",
                    "TCPFastOpenListenOverflow",
                    "Fast opens refused because too many were pending.",
                ),
                ("fast_open_cookie_reqd", "TCPFastOpenCookieReqd", "Requests for a fast open cookie received."),
                ("fast_open_blackhole", "TCPFastOpenBlackhole", "Times fast open was turned off: SYNs were eaten."),
                (
                    "spurious_rtx_host_queues",
                    "TCPSpuriousRtxHostQueues",
                    "Retransmissions dropped because the segment had not yet left this host.",
                ),
                ("busy_poll_rx_packets", "BusyPollRxPackets", "Packets received by busy polling."),
                ("auto_corking", "TCPAutoCorking", "Small segments held back to join later ones."),
                ("from_zero_window_adv", "TCPFromZeroWindowAdv", "Receive windows reopened from zero."),
                ("to_zero_window_adv", "TCPToZeroWindowAdv", "Receive windows closed to zero."),
                ("want_zero_window_adv", "TCPWantZeroWindowAdv", "Windows that should have closed but could not."),
                ("syn_retrans", "TCPSynRetrans", "SYNs and SYN-ACKs sent again."),
                ("orig_data_sent", "TCPOrigDataSent", "Segments with data sent for the first time."),
                ("hystart_train_detect", "TCPHystartTrainDetect", "Slow starts left for the length of the ACK train."),
                ("hystart_train_cwnd", "TCPHystartTrainCwnd", "Sum of the windows at which that was, in segments."),
                ("hystart_delay_detect", "TCPHystartDelayDetect", "Slow starts left because of growing delay."),
                ("hystart_delay_cwnd", "TCPHystartDelayCwnd", "Sum of the windows at which that was, in segments."),
                ("ack_skipped_syn_recv", "TCPACKSkippedSynRecv", "ACKs not sent in SYN_RECV: rate limit."),
                ("ack_skipped_paws", "TCPACKSkippedPAWS", "ACKs to old timestamps not sent: rate limit."),
                ("ack_skipped_seq", "TCPACKSkippedSeq", "ACKs to segments out of window not sent: rate limit."),
                ("ack_skipped_fin_wait2", "TCPACKSkippedFinWait2", "ACKs not sent in FIN_WAIT_2: rate limit."),
                ("ack_skipped_time_wait", "TCPACKSkippedTimeWait", "ACKs not sent in TIME_WAIT: rate limit."),
                ("ack_skipped_challenge", "TCPACKSkippedChallenge", "Challenge ACKs not sent: rate limit."),
                ("win_probe", "TCPWinProbe", "Probes sent to a window of zero."),
                ("keep_alive", "TCPKeepAlive", "Keep-alive probes sent."),
                ("mtup_fail", "TCPMTUPFail", "Path MTU probes that failed."),
                ("mtup_success", "TCPMTUPSuccess", "Path MTU probes that succeeded."),
                ("delivered", "TCPDelivered", "Segments delivered to the other side, retransmitted ones included."),
                ("delivered_ce", "TCPDeliveredCE", "Segments delivered whose ACK signalled congestion."),
                ("ack_compressed", "TCPAckCompressed", "ACKs saved by compression."),
                ("zero_window_drop", "TCPZeroWindowDrop", "Segments dropped because the receive window was zero."),
                ("rcv_q_drop", "TCPRcvQDrop", "Segments in order dropped because the receive queue was full."),
                ("wqueue_too_big", "TCPWqueueTooBig", "Times a write queue was too large to split a segment in."),
                ("fast_open_passive_alt_key", "TCPFastOpenPassiveAltKey", "Fast opens accepted by the secondary key."),
                ("timeout_rehash", "TcpTimeoutRehash", "Connections moved to another path after a timeout."),
                ("duplicate_data_rehash", "TcpDuplicateDataRehash", "Connections moved to another path: duplicates."),
                ("dsack_recv_segs", "TCPDSACKRecvSegs", "Segments that received DSACKs reported as duplicates."),
                ("dsack_ignored_dubious", "TCPDSACKIgnoredDubious", "DSACKs ignored for covering too much."),
                ("migrate_req_success", "TCPMigrateReqSuccess", "Pending connections moved to another listener."),
                ("migrate_req_failure", "TCPMigrateReqFailure", "Pending connections that could not be moved."),
                ("plb_rehash", "TCPPLBRehash", "Connections moved to another path by protective load balancing."),
                ("ao_required", "TCPAORequired", "Segments dropped for lacking the authentication (TCP-AO) agreed on."),
                ("ao_bad", "TCPAOBad", "Segments dropped for a wrong authentication (TCP-AO)."),
                ("ao_key_not_found", "TCPAOKeyNotFound", "Segments dropped for an unknown key (TCP-AO)."),
                ("ao_good", "TCPAOGood", "Segments with a right authentication (TCP-AO)."),
                ("ao_dropped_icmps", "TCPAODroppedIcmps", "ICMP messages ignored to protect connections with TCP-AO."),
            ),
        ),
    ),
)

UDP = Table(
    "udp",
    doc="UDP over IPv4, without UDP-Lite.",
    metrics=_counters(
        _UDP,
        (
            ("in_datagrams", "InDatagrams", "Datagrams delivered to a socket."),
            ("no_ports", "NoPorts", "Datagrams received for a port nobody listens on."),
            ("in_errors", "InErrors", "Datagrams received that could not be delivered for another reason."),
            ("out_datagrams", "OutDatagrams", "Datagrams sent."),
            ("rcvbuf_errors", "RcvbufErrors", "Datagrams dropped because a receive buffer was full."),
            ("sndbuf_errors", "SndbufErrors", "Datagrams not sent because a send buffer was full."),
            ("in_csum_errors", "InCsumErrors", "Datagrams dropped for a wrong checksum."),
            ("ignored_multi", "IgnoredMulti", "Multicast datagrams that no socket wanted."),
            ("mem_errors", "MemErrors", "Datagrams dropped because UDP as a whole had no memory left."),
        ),
    ),
)


def pair(content: bytes, section: bytes) -> tuple[bytes, bytes]:
    """Find the line of names and the line of numbers, which both begin with ``section``.

    :raises ValueError: where either is missing or cut short.
    """
    mark = b"\n" + section
    start = 0 if content.startswith(section) else content.index(mark) + 1
    middle = content.index(mark, start)
    end = content.index(b"\n", middle + 1)
    return content[start + len(section) : middle], content[middle + len(mark) : end]


class LinePair:
    """The part of a row from one pair of lines; unchanged numbers keep their row."""

    def __init__(self, metrics: list[Metric]) -> None:
        """Take metrics whose ``origin`` names the same file and section."""
        self._path, section, _ = metrics[0].origin.split()
        self._section = section.encode()
        self._fields = Fields(metric.origin.split()[2].encode() for metric in metrics)
        self._names_line = b""
        self._names: list[bytes] = []
        self._numbers_line = b""
        self._values: tuple[int, ...] = ()

    def read(self, host: Host) -> tuple[int, ...]:
        """Give the numbers, ABSENT for those that this kernel lacks."""
        names_line, numbers_line = pair(host.read(self._path), self._section)
        if numbers_line != self._numbers_line or names_line != self._names_line:
            names = self._names if names_line == self._names_line else names_line.split()
            numbers = numbers_line.split()
            if len(names) != len(numbers):
                raise ValueError(f"{self._path} {self._section.decode()} {len(names)} names, {len(numbers)} numbers")
            self._values = tuple(self._fields.pick(names, numbers))
            self._names, self._names_line, self._numbers_line = names, names_line, numbers_line
        return self._values


def reader(table: Table) -> Callable[[Host], Iterator[Row]]:
    """Make the function that reads a table whose metrics come from one or two sections."""
    origins = dict.fromkeys(metric.origin.rsplit(" ", 1)[0] for metric in table.metrics)
    sections = [
        LinePair([metric for metric in table.metrics if metric.origin.startswith(origin)]) for origin in origins
    ]

    def read(host: Host) -> Iterator[Row]:
        values: tuple[int, ...] = ()
        for section in sections:
            values += section.read(host)
        yield "", values

    return read


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``ip``, ``icmp``, ``tcp`` and ``udp``."""
    seldom = [Probe(table, reader(table), SELDOM_S, pure=True) for table in (IP, ICMP)]
    return seldom + [Probe(table, reader(table), pure=True) for table in (TCP, UDP)]
