"""``make demo``: a pipeline over several topics that survives being killed, beside one that does not.

Read in this order: ``transform`` (what the pipeline computes), ``pipeline`` (the pipeline on txnlog), ``control`` (the
same one, written the ordinary way), ``kills`` (how both are killed), ``compare`` (who kept what), ``timeline`` (the
picture).
"""
