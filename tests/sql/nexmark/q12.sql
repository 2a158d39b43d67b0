-- Processing time windows.
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(DATA => (SELECT *, PROCTIME() AS p_time FROM bid), TIMECOL => DESCRIPTOR(p_time), SIZE => INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
