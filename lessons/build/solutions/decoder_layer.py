def decoder_layer(x, memory, attend, attend_across, feed_forward, norm_1, norm_2, norm_3):
    x = norm_1(x + attend(x, x))
    x = norm_2(x + attend_across(x, memory))
    return norm_3(x + feed_forward(x))
