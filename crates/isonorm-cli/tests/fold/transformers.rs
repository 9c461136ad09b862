//! LayerNorm and RMSNorm weights into the linear layers that read them.

use crate::model::{Model, Sandbox, left_alone};

/// Two decoder blocks and an output layer, as Llama's state dict names them.
fn llama() -> Model {
    let mut model = Model::default();
    model.weight("model.embed_tokens", &[10, 8]);
    for block in ["model.layers.0", "model.layers.1"] {
        for (name, shape) in [
            ("self_attn.q_proj", [8, 8]),
            ("self_attn.k_proj", [4, 8]),
            ("self_attn.v_proj", [4, 8]),
            ("self_attn.o_proj", [8, 8]),
            ("mlp.gate_proj", [12, 8]),
            ("mlp.up_proj", [12, 8]),
            ("mlp.down_proj", [8, 12]),
        ] {
            model.weight(&format!("{block}.{name}"), &shape);
        }
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            model.weight(&format!("{block}.{norm}"), &[8]);
        }
    }
    model.weight("model.norm", &[8]);
    model.weight("lm_head", &[10, 8]);
    model
}

#[test]
fn decoder_norms_go_into_every_reader() {
    let model = llama();
    let sandbox = Sandbox::new(&model);
    let run = sandbox.run(&[]);
    assert_eq!(run.code, 1);
    assert!(
        run.stdout
            .contains("left alone model.norm: LayerNorm, RMSNorm or GroupNorm"),
        "{}",
        run.stdout
    );

    let (report, folded) = sandbox.fold(&["--norms", "layer"]);
    assert_eq!(report["folded"].as_array().unwrap().len(), 2 * 5 + 1);
    let gamma = model.values("model.layers.1.input_layernorm.weight");
    let name = "model.layers.1.self_attn.k_proj.weight";
    for (i, (new, old)) in Model::read(&folded[name]).iter().zip(model.values(name)).enumerate() {
        assert!((new - old * gamma[i % 8]).abs() <= 6e-8 * new.abs());
    }
    assert_eq!(Model::read(&folded["model.norm.weight"]), [1.0; 8]);
    for name in ["model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight"] {
        assert_eq!(folded[name], model.tensors[name]);
    }
    assert_eq!(folded.len(), model.tensors.len());
    assert!(report["added"].as_array().unwrap().is_empty());
}

#[test]
fn weights_stored_minus_one_become_zero() {
    let model = llama();
    let (_, folded) = Sandbox::new(&model).fold(&["--norms", "layer", "--unit-offset"]);
    let gamma = model.values("model.norm.weight");
    for (i, (new, old)) in Model::read(&folded["lm_head.weight"])
        .iter()
        .zip(model.values("lm_head.weight"))
        .enumerate()
    {
        assert!((new - old * (1.0 + gamma[i % 8])).abs() <= 6e-8 * new.abs());
    }
    assert_eq!(Model::read(&folded["model.norm.weight"]), [0.0; 8]);
}

#[test]
fn decoder_norms_with_unknown_readers_are_left_alone() {
    // A tied output layer, a gate that also reads the norm, norms after their block, and blocks side by side.
    let mut model = llama();
    let embedding = model.tensors["model.embed_tokens.weight"].clone();
    model.tensors.insert("lm_head.weight".into(), embedding);
    model.weight("model.layers.0.self_attn.gate", &[8, 8]);
    model.weight("model.layers.1.pre_feedforward_layernorm", &[8]);
    model.weight("model.layers.1.post_feedforward_layernorm", &[8]);
    model.weight("parallel.input_layernorm", &[8]);
    let (report, _) = Sandbox::new(&model).fold(&["--norms", "all"]);
    let left = left_alone(&report);
    let expected = [
        ("model.layers.0.input_layernorm", "self_attn.gate.weight may read it"),
        (
            "model.layers.1.post_attention_layernorm",
            "pre_feedforward_layernorm beside it",
        ),
        ("model.layers.1.post_feedforward_layernorm", "no rule by name"),
        ("model.norm", "shares its weight"),
        ("parallel.input_layernorm", "no post_attention_layernorm beside it"),
    ];
    for (norm, reason) in expected {
        assert!(
            left.iter().any(|(n, r)| *n == norm && r.contains(reason)),
            "{norm}: {left:#?}"
        );
    }
    assert_eq!(left.len(), expected.len());
}

#[test]
fn gpt2_stores_its_weights_transposed() {
    let mut model = Model::default();
    for norm in ["h.0.ln_1", "h.0.ln_2", "ln_f"] {
        model.weight(norm, &[4]);
        model.tensor(&format!("{norm}.bias"), &[4]);
    }
    for (name, shape) in [
        ("attn.c_attn", [4, 12]),
        ("attn.c_proj", [4, 4]),
        ("mlp.c_fc", [4, 16]),
        ("mlp.c_proj", [16, 4]),
    ] {
        model.weight(&format!("h.0.{name}"), &shape);
        model.tensor(&format!("h.0.{name}.bias"), &[shape[1]]);
    }
    model.weight("wte", &[10, 4]);
    let (report, folded) = Sandbox::new(&model).fold(&["--norms", "layer"]);
    assert_eq!(report["folded"].as_array().unwrap().len(), 2);
    assert_eq!(report["folded"][0]["layer_kind"], "transposed linear");
    assert!(left_alone(&report)[0].1.contains("no lm_head.weight"));

    let (weight, beta) = (model.values("h.0.attn.c_attn.weight"), model.values("h.0.ln_1.bias"));
    let old = model.values("h.0.attn.c_attn.bias");
    for (o, new) in Model::read(&folded["h.0.attn.c_attn.bias"]).iter().enumerate() {
        let product: f64 = (0..4).map(|i| weight[i * 12 + o] * beta[i]).sum();
        assert!((new - old[o] - product).abs() < 1e-6);
    }
    assert_eq!(Model::read(&folded["h.0.ln_1.bias"]), [0.0; 4]);
}

#[test]
fn a_square_layer_of_gpt2_s_names_has_to_be_explained() {
    let mut model = Model::default();
    for norm in ["h.0.ln_1", "h.0.ln_2"] {
        model.weight(norm, &[4]);
    }
    model.weight("h.0.attn.c_attn", &[12, 4]);
    model.weight("h.0.mlp.c_fc", &[4, 4]);
    let sandbox = Sandbox::new(&model);
    let (report, _) = sandbox.fold(&["--norms", "all"]);
    assert_eq!(report["folded"][0]["layer_kind"], "linear");
    assert!(left_alone(&report)[0].1.contains("is square"));
    let (report, _) = sandbox.fold(&["--norms", "all", "--transposed", "h.*.mlp.c_fc"]);
    assert_eq!(report["folded"][1]["layer_kind"], "transposed linear");
    let (report, _) = sandbox.fold(&["--map", "h.*.ln_2=h.*.mlp.c_fc"]);
    assert_eq!(report["folded"][0]["layer_kind"], "linear");
}

#[test]
fn a_mapped_norm_may_have_any_name() {
    let mut model = Model::default();
    model.weight("0", &[4]);
    model.weight("1", &[3, 4]);
    let sandbox = Sandbox::new(&model);
    assert_eq!(sandbox.run(&["--norms", "all"]).code, 1);
    let (report, folded) = sandbox.fold(&["--map", "0=1"]);
    assert_eq!(report["folded"][0]["norm"], "0");
    assert_eq!(Model::read(&folded["0.weight"]), [1.0; 4]);
}
